use super::*;

fn shipped() -> LocaliseReport {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/nezha");
    evaluate_nezha(Path::new(dir)).unwrap()
}

#[test]
fn shipped_faults_are_found_first() {
    let report = shipped();
    assert_eq!(report.all.faults, 5);
    let missed: Vec<_> = report
        .faults
        .iter()
        .filter(|f| f.place != Some(1))
        .collect();
    assert!(missed.is_empty(), "{missed:?}");
    assert_eq!(report.all.firm.avg5, 1.0);
    assert_eq!(report.by_kind["network_delay"].faults, 3);
}

#[test]
fn fault_with_only_mixed_files_is_scored_on_what_began_after_it() {
    let report = shipped();
    let cut: Vec<_> = report.faults.iter().filter(|f| f.cut_from_mixed).collect();
    assert_eq!(cut.len(), 1);
    assert_eq!(cut[0].id, "ob_2022-08-22_0543_emailservice");
    // The file has some that began before.
    assert!(
        cut[0].requests > 20 && cut[0].requests < 80,
        "{}",
        cut[0].requests
    );
}

#[test]
fn table_names_what_was_missed_and_how_mixed_files_count() {
    let text = shipped().to_string();
    assert!(
        text.contains("network_delay         3       3/3     3/3  1.000"),
        "{text}"
    );
    assert!(
        text.contains("1 faults have no file of their own"),
        "{text}"
    );
}

#[test]
fn accuracy_by_hand() {
    let places = [Some(1), Some(3), None, Some(5)];
    let accuracy = Accuracy::of(places.into_iter());
    assert_eq!((accuracy.top1, accuracy.top3), (1, 2));
    // AC@1..5: 1/4, 1/4, 2/4, 2/4, 3/4.
    assert!((accuracy.avg5 - 9.0 / 20.0).abs() < 1e-12);
}

#[test]
fn labels_of_another_form_are_refused_with_their_path() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(
        evaluate_nezha(dir.path()),
        Err(EvaluationError::Io(_))
    ));
    fs_err::write(dir.path().join("labels.json"), "[]").unwrap();
    let error = evaluate_nezha(dir.path()).unwrap_err();
    assert!(error.to_string().contains("labels.json"), "{error}");
}
