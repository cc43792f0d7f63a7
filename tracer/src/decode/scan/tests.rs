use super::*;
use proptest::prelude::*;

fn scan(text: &str) -> Scan<'_> {
    Scan::within(text.as_bytes(), 0..text.len())
}

fn skipped(text: &str) -> Read<usize> {
    let mut scan = scan(text);
    scan.skip().map(|()| scan.pos)
}

#[test]
fn escapes_and_brackets_in_strings_are_text() {
    let text = r#"{"a\\":"}\"]","b":[[],{"c":"\\\\"}]}"#;
    assert_eq!(skipped(&format!("{text} tail")), Ok(text.len()));
    assert!(skipped(r#"{"a":"b\""#).is_err());
    assert!(skipped("[[[").is_err());
    assert!(skipped("tru").is_err());
    assert!(skipped("").is_err());
    assert!(skipped(";").is_err());
}

#[test]
fn text_that_is_not_right_is_kept_with_replacement_characters() {
    let read = |text: &[u8]| {
        let mut scan = Scan::within(text, 0..text.len());
        let scalar = scan.scalar().unwrap();
        assert_eq!(scan.pos, text.len());
        assert!(matches!(scalar, Scalar::Unfit(_)), "{scalar:?}");
        scalar.mended().text().unwrap().to_owned()
    };
    assert_eq!(read(b"\"x\xff\""), "x\u{fffd}");
    for (text, kept) in [
        (r#""x\ud83d""#, "x\u{fffd}"),
        (r#""\ude00\ud83dA""#, "\u{fffd}\u{fffd}A"),
        (r#""\ud83d\u0041""#, "\u{fffd}A"),
        (r#""\u12""#, "\u{fffd}12"),
        (r#""\u+123""#, "\u{fffd}+123"),
        (r#""\q\n""#, "\u{fffd}q\n"),
    ] {
        assert_eq!(read(text.as_bytes()), kept, "{text}");
    }
}

#[test]
fn what_is_no_json_value_is_one_value_and_ends_where_it_ends() {
    for (text, value, end) in [
        ("1e999,", Scalar::TooLarge, 5),
        ("-1e999]", Scalar::TooLarge, 6),
        ("NaN}", Scalar::Word, 3),
        ("-Infinity ", Scalar::Word, 9),
        ("01,", Scalar::Word, 2),
        ("0x1f,", Scalar::Word, 4),
        ("12ms,", Scalar::Word, 4),
        ("-,", Scalar::Word, 1),
        ("trues,", Scalar::Word, 5),
        ("true,", Scalar::Bool(true), 4),
        ("1;", Scalar::Unsigned(1), 1),
    ] {
        let mut scan = scan(text);
        assert_eq!(scan.scalar(), Ok(value), "{text}");
        assert_eq!(scan.pos, end, "{text}");
    }
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        ".*".prop_map(serde_json::Value::String),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::Array),
            prop::collection::vec((".{0,10}", inner), 0..6)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_value_is_skipped_whole(value in any_json(), pretty in any::<bool>()) {
        let text = if pretty {
            serde_json::to_string_pretty(&value).unwrap()
        } else {
            value.to_string()
        };
        prop_assert_eq!(skipped(&format!("{text},1")), Ok(text.len()));
    }

    #[test]
    fn any_string_is_read_as_serde_reads_it(text in any::<String>(), pad in 0_usize..9) {
        let json = format!("{}{}", " ".repeat(pad), serde_json::to_string(&text).unwrap());
        let scalar = scan(&json).scalar();
        prop_assert_eq!(scalar, Ok(Scalar::Text(Cow::Owned(text))));
        prop_assert_eq!(skipped(&json), Ok(json.len()));
    }

    #[test]
    fn any_escaped_string_is_read_as_serde_reads_it(text in any::<String>()) {
        let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        let json = format!("\"{escaped}\"");
        prop_assert_eq!(&serde_json::from_str::<String>(&json).unwrap(), &text);
        prop_assert_eq!(scan(&json).scalar(), Ok(Scalar::Text(Cow::Owned(text))));
    }

    #[test]
    fn any_escapes_are_right_where_serde_takes_them(
        parts in prop::collection::vec("[a\\\\\"/bfnrtuq0-9é]|\\\\u[dD][89a-fA-F][0-9]{2}", 0..12),
    ) {
        let json = format!("\"{}\"", parts.concat());
        let mut scan = scan(&json);
        let Ok(scalar) = scan.scalar() else {
            return Ok(());
        };
        match serde_json::from_str::<String>(&json[..scan.pos]) {
            Ok(known) => prop_assert_eq!(scalar, Scalar::Text(Cow::Owned(known))),
            Err(_) => prop_assert!(matches!(scalar, Scalar::Unfit(_)), "{scalar:?}"),
        }
    }

    #[test]
    fn any_number_is_read_as_serde_reads_it(text in "-?[0-9]{1,20}(\\.[0-9]{1,3})?(e[0-9])?") {
        let known = serde_json::from_str::<serde_json::Number>(&text).ok();
        let read = match scan(&text).scalar().unwrap() {
            Scalar::Unsigned(number) => Some(number.into()),
            Scalar::Signed(number) => Some(number.into()),
            Scalar::Float(number) => serde_json::Number::from_f64(number),
            Scalar::Word => None,
            other => panic!("{other:?}"),
        };
        prop_assert_eq!(read, known);
    }
}
