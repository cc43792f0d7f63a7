//! Long answers of the query API, `{"data": [TRACE...], ...}`, trace by trace through a window.
//!
//! Memory that is new to the process costs more than decoding does, so a long file is not read
//! into memory as a whole. A trace that the window cuts off is read again when the rest of it is
//! there. What has another form, or is broken anywhere, is left to [`super::decode`], which says
//! where.

use std::io::{self, Read};

use firm_model::{Interner, Span};

use super::{Jaeger, MAX_DEPTH};
use crate::decode::Decoded;
use crate::decode::documents::{Target, without_mark};
use crate::decode::scan::Scan;

/// Bytes of the window; it grows when a trace is longer.
pub(crate) const WINDOW: usize = 1 << 20;

/// Bytes read before anything else, to look at the form.
const HEAD: usize = 4096;

/// Traces stand in an array in an object.
const TRACE_DEPTH: u32 = MAX_DEPTH - 2;

/// Decodes a whole text; gives its counts and length, or nothing and leaves `out` as it was if
/// the text is not of the form or broken, or `is_jaeger` does not know its first bytes.
///
/// # Errors
/// The reader's; `out` is as it was.
pub(crate) fn decode(
    reader: impl Read,
    is_jaeger: impl Fn(&[u8]) -> bool,
    names: &Interner,
    out: &mut Vec<Span>,
) -> io::Result<Option<(Decoded, u64)>> {
    let first = out.len();
    let result = whole(reader, is_jaeger, names, out);
    if !matches!(result, Ok(Some(_))) {
        out.truncate(first);
    }
    result
}

fn whole(
    reader: impl Read,
    is_jaeger: impl Fn(&[u8]) -> bool,
    names: &Interner,
    out: &mut Vec<Span>,
) -> io::Result<Option<(Decoded, u64)>> {
    let mut window = Window::new(reader, WINDOW);
    window.fill(HEAD)?;
    let Some(start) = start_of_traces(window.text()).filter(|_| is_jaeger(window.text())) else {
        return Ok(None);
    };
    window.consume(start);
    let mut decoded = Decoded::default();
    loop {
        window.fill(usize::MAX)?;
        let (read, then) = traces(window.text(), &mut decoded, names, out);
        window.consume(read);
        match then {
            Then::More if window.ended => return Ok(None),
            Then::More if read == 0 => window.grow(),
            Then::More => {}
            Then::Tail => break,
        }
    }
    while !window.ended {
        window.grow();
        window.fill(usize::MAX)?;
    }
    let length = window.passed + window.text().len() as u64;
    let closed = tail(window.text_mut(), &mut decoded, names, out);
    Ok(closed.map(|()| (decoded, length)))
}

/// What comes after the traces that a window held.
enum Then {
    /// A trace that is cut off, or broken.
    More,
    /// The end of their array.
    Tail,
}

/// Where the first trace begins.
fn start_of_traces(text: &[u8]) -> Option<usize> {
    let mark = text.len() - without_mark(text).len();
    let mut scan = Scan::within(text, mark..text.len());
    for part in [&b"{"[..], b"\"data\"", b":", b"["] {
        scan.peek();
        scan.accept(part)?;
    }
    Some(scan.place())
}

/// Reads the traces that are there as a whole; gives the bytes up to behind the last of them.
fn traces(
    text: &[u8],
    decoded: &mut Decoded,
    names: &Interner,
    out: &mut Vec<Span>,
) -> (usize, Then) {
    let mut scan = Scan::within(text, 0..text.len());
    let mut target = Target {
        decoded: std::mem::take(decoded),
        ..Target::new(names, out, Jaeger::default())
    };
    let then = loop {
        let (start, spans) = (scan.place(), target.out.len());
        let before = target.decoded.clone();
        let next = match target.value(&mut scan, TRACE_DEPTH) {
            Ok(()) => scan.peek(),
            Err(_) => None,
        };
        match next {
            Some(b',') => drop(scan.accept(b",")),
            Some(b']') => {
                let _ = scan.accept(b"]");
                break Then::Tail;
            }
            _ => {
                scan = Scan::within(text, start..text.len());
                target.out.truncate(spans);
                target.decoded = before;
                break Then::More;
            }
        }
    };
    *decoded = target.decoded;
    (scan.place(), then)
}

/// Reads what stands behind the traces: other members of their object, and its end.
fn tail(
    text: &mut [u8],
    decoded: &mut Decoded,
    names: &Interner,
    out: &mut Vec<Span>,
) -> Option<()> {
    let mut scan = Scan::within(text, 0..text.len());
    if scan.peek() == Some(b'}') {
        scan.accept(b"}")?;
        return scan.peek().is_none().then_some(());
    }
    let comma = scan.place();
    scan.accept(b",")?;
    (scan.peek() == Some(b'"')).then_some(())?;
    // The members that are left make an object of their own.
    *text.get_mut(comma)? = b'{';
    let mut scan = Scan::within(text, comma..text.len());
    let mut target = Target {
        decoded: std::mem::take(decoded),
        ..Target::new(names, out, Jaeger::default())
    };
    target.value(&mut scan, MAX_DEPTH).ok()?;
    *decoded = target.decoded;
    scan.peek().is_none().then_some(())
}

/// A part of a text that moves forward.
struct Window<R> {
    reader: R,
    /// Its first `filled` bytes are of the text.
    room: Vec<u8>,
    /// How many of those are done with.
    done: usize,
    filled: usize,
    /// Bytes of the text before `done`.
    passed: u64,
    /// Whether the text ends with the window.
    ended: bool,
}

impl<R: Read> Window<R> {
    fn new(reader: R, room: usize) -> Self {
        Self {
            reader,
            room: vec![0; room],
            done: 0,
            filled: 0,
            passed: 0,
            ended: false,
        }
    }

    fn text(&self) -> &[u8] {
        self.room.get(self.done..self.filled).unwrap_or_default()
    }

    fn text_mut(&mut self) -> &mut [u8] {
        let text = self.room.get_mut(self.done..self.filled);
        text.unwrap_or_default()
    }

    fn consume(&mut self, bytes: usize) {
        self.done += bytes;
        self.passed += bytes as u64;
    }

    fn grow(&mut self) {
        self.room.resize(2 * self.room.len(), 0);
    }

    /// Reads until the room, or so many bytes of it, is full.
    fn fill(&mut self, most: usize) -> io::Result<()> {
        self.room.copy_within(self.done..self.filled, 0);
        self.filled -= self.done;
        self.done = 0;
        let most = most.min(self.room.len());
        while let Some(free @ [_, ..]) = self.room.get_mut(self.filled..most) {
            match self.reader.read(free) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn trace(id: usize, spans: usize) -> String {
        let spans: Vec<String> = (1..=spans)
            .map(|span| {
                let process = if span % 3 == 0 { "p2" } else { "p1" };
                format!(
                    r#"{{"traceID":"{id:x}","spanID":"{span:x}","operationName":"o{span}","startTime":{span},"processID":"{process}","tags":[{{"key":"x","type":"string","value":"]}},{{"}}]}}"#
                )
            })
            .collect();
        format!(
            r#"{{"traceID":"{id:x}","spans":[{}],"processes":{{"p1":{{"serviceName":"a"}}}}}}"#,
            spans.join(",")
        )
    }

    fn streamed(text: &[u8], names: &Interner) -> Option<(Decoded, Vec<Span>)> {
        let mut out = Vec::new();
        let result = decode(text, |_| true, names, &mut out).unwrap();
        assert!(result.is_some() || out.is_empty());
        result.map(|(decoded, length)| {
            assert_eq!(length, text.len() as u64);
            (decoded, out)
        })
    }

    fn at_once(text: &[u8], names: &Interner) -> (Decoded, Vec<Span>) {
        let mut out = Vec::new();
        let decoded = super::super::decode(text, names, &mut out).unwrap();
        (decoded, out)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        // About 180 bytes a span: from a window's half to several windows, traces of up to two.
        #[test]
        fn a_stream_gives_what_the_whole_text_gives(
            sizes in prop::collection::vec(prop_oneof![0_usize..40, 0_usize..12_000], 1..6),
            end in prop::sample::select(vec![
                "]}",
                " ] } \n",
                r#"],"total":0,"errors":null}"#,
                r#"],"data":[{"traceID":"9","spanID":"9","startTime":1}],"x":{"y":[]}}"#,
            ]),
        ) {
            let traces: Vec<String> = sizes
                .iter()
                .enumerate()
                .map(|(id, spans)| trace(id, *spans))
                .collect();
            let text = format!(" {{\"data\" : [{}{end}", traces.join(" , "));
            let names = Interner::new();
            let whole = at_once(text.as_bytes(), &names);
            prop_assert_eq!(streamed(text.as_bytes(), &names), Some(whole));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn a_damaged_text_is_refused_or_gives_what_it_gives_at_once(
            places in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
            with in prop::sample::select(b"\\\\\"[]{},:0 ".to_vec()),
        ) {
            let traces: Vec<String> = (1..80).map(|id| trace(id, 130)).collect();
            let mut text = format!("{{\"data\":[{}]}}", traces.join(",")).into_bytes();
            prop_assert!(text.len() > WINDOW);
            for place in places {
                let place = place.index(text.len());
                text[place] = with;
            }
            let names = Interner::new();
            if let Some(result) = streamed(&text, &names) {
                prop_assert_eq!(result, at_once(&text, &names));
            }
        }
    }

    #[test]
    fn other_forms_and_broken_texts_are_left_alone() {
        let names = Interner::new();
        let whole = trace(1, 3);
        for text in [
            String::new(),
            whole.clone(),
            format!("[{whole}]"),
            format!(r#"{{"data":[{whole}"#),
            format!(r#"{{"data":[{whole},]}}"#),
            format!(r#"{{"data":[{whole}],}}"#),
            format!(r#"{{"data":[{whole}]"#),
            format!(r#"{{"data":[{whole}]}}{{}}"#),
            format!(r#"{{"data":[{whole}],"x":1}} 2"#),
            format!(r#"{{"data":[{whole}{whole}]}}"#),
            format!(r#"{{"data":[{whole},{{"spans":[1,]}}]}}"#),
        ] {
            assert_eq!(streamed(text.as_bytes(), &names), None, "{text}");
        }
    }

    #[test]
    fn an_error_of_the_reader_is_given() {
        struct Fails;
        impl Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("no"))
            }
        }
        let text = format!(r#"{{"data":[{},"#, trace(1, 3));
        let mut out = Vec::new();
        let reader = text.as_bytes().chain(Fails);
        let error = decode(reader, |_| true, &Interner::new(), &mut out).unwrap_err();
        assert_eq!(error.to_string(), "no");
        assert!(out.is_empty());
    }
}
