use firm_model::{Intensity, Latency, MilliCores, Quantile};

use crate::Document;

fn problems(text: &str, read: impl FnOnce(&mut crate::Section<'_>)) -> Vec<String> {
    let document = match Document::parse("f.yaml", text) {
        Ok(document) => document,
        Err(problems) => return problems.0.iter().map(ToString::to_string).collect(),
    };
    let result = document.read(|section| {
        read(section);
        Some(())
    });
    result.err().map_or(Vec::new(), |all| {
        all.0.iter().map(ToString::to_string).collect()
    })
}

#[test]
fn all_problems_come_together_each_with_file_line_key_value_and_rule() {
    let text = "bound: 20\nquantile: 1.5\nintensity: .nan\ncpu: 3 apples\nretention: 1s\n";
    let found = problems(text, |section| {
        let _: Option<Latency> = section.required("bound");
        let _: Option<Quantile> = section.required("quantile");
        let _: Option<Intensity> = section.required("intensity");
        let _: Option<MilliCores> = section.required("cpu");
        let _: Option<String> = section.required("name");
    });
    assert_eq!(
        found,
        [
            "f.yaml:1: bound: expected a time with a unit like `250us`, `20ms` or `1.5s` (value `20`)",
            "f.yaml:1: name: missing, expected a text",
            "f.yaml:2: quantile: quantile 1.5 is not strictly between 0 and 1 (value `1.5`)",
            "f.yaml:3: intensity: intensity NaN is not within 0..=1 (value `NaN`)",
            "f.yaml:4: cpu: `3 apples` has no unit of CPU, expected cores like `0.25` or thousandths like `250m` (value `3 apples`)",
            "f.yaml:5: retention: unknown key (value `1s`); expected one of bound, quantile, intensity, cpu, name",
        ]
    );
}

#[test]
fn misspelt_key_is_named_with_the_near_one() {
    let found = problems("services:\n  cart:\n    replicsa: 2\n", |section| {
        for (_, mut service) in section.entries("services") {
            let _: u32 = service.or("replicas", 1);
        }
    });
    assert_eq!(
        found,
        ["f.yaml:3: services.cart.replicsa: unknown key (value `2`); did you mean `replicas`?"]
    );
}

#[test]
fn infinite_negative_and_duplicate_values_are_refused() {
    for text in [
        "x: .inf",
        "x: -.inf",
        "x: .nan",
        "x: [1]",
        "x: {y: 1}",
        "x: one",
    ] {
        let found = problems(text, |section| {
            let _: Option<f64> = section.required("x");
        });
        assert_eq!(found.len(), 1, "{text}: {found:?}");
    }
    let negative = problems("x: -3", |section| {
        let _: Option<u64> = section.required("x");
    });
    assert_eq!(negative.len(), 1);
    assert_eq!(problems("x: 1\nx: 2\n", |_| {}).len(), 1);
}

#[test]
fn broken_yaml_names_its_line() {
    let found = problems("a: 1\nb: [1, 2\n", |_| {});
    assert!(
        found[0].starts_with("f.yaml:") && found[0].contains("not YAML"),
        "{found:?}"
    );
}

#[test]
fn lists_and_maps_where_scalars_belong_are_named() {
    let found = problems("a: 1\nb:\n  - 2\n", |section| {
        let _ = section.sections("a");
        let _ = section.entries("b");
    });
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn empty_file_is_an_empty_map() {
    assert!(problems("", |section| assert!(!section.has("x"))).is_empty());
    assert!(problems("# nothing\n", |_| {}).is_empty());
}

#[test]
fn times_and_quantiles_read_in_all_their_forms() {
    let document = Document::parse("f", "a: 1.5s\nb: 250us\nc: p99.9\nd: 0.5\n").unwrap();
    let read = document.read(|section| {
        Some((
            section.required::<Latency>("a")?,
            section.required::<Latency>("b")?,
            section.required::<Quantile>("c")?,
            section.required::<MilliCores>("d")?,
        ))
    });
    let (a, b, c, d) = read.unwrap();
    assert_eq!(
        (a, b),
        (Latency::from_millis(1500), Latency::from_nanos(250_000))
    );
    assert!((c.get() - 0.999).abs() < 1e-12);
    assert_eq!(d, MilliCores::new(500));
}

#[test]
fn nesting_that_overflowed_the_stack_is_refused() {
    for open in ["- ", "? ", "["] {
        let text = format!("services:\n{}1", open.repeat(20_000));
        let found = problems(&text, |_| {});
        assert_eq!(found.len(), 1, "{open}");
        // Brackets have a bound in the scanner itself.
        let is_told = |rule| found[0].contains(rule);
        assert!(
            is_told("nested deeper than 64") || is_told("recursion limit"),
            "{}",
            found[0]
        );
    }
}
