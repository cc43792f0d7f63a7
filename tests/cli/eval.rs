//! `firm eval localise`.

use crate::program::{data, firm};

#[test]
fn last_line_is_one_object_with_the_figures() {
    let done = firm(["eval", "localise", "--nezha", &data("nezha")]).exits(0);
    let last = done.stdout.lines().last().unwrap();
    let figures: serde_json::Value = serde_json::from_str(last).unwrap();
    let labels = fs_err::read_to_string(data("nezha/labels.json")).unwrap();
    let labels: serde_json::Value = serde_json::from_str(&labels).unwrap();
    assert_eq!(
        figures["all"]["faults"],
        labels["faults"].as_array().unwrap().len()
    );
    let first_of_all = figures["faults"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|fault| fault["place"] == 1)
        .count();
    assert_eq!(figures["all"]["firm"]["top1"], first_of_all);
    let by_kind: u64 = figures["by_kind"]
        .as_object()
        .unwrap()
        .values()
        .map(|kind| kind["faults"].as_u64().unwrap())
        .sum();
    assert_eq!(figures["all"]["faults"], by_kind);
    // The set kept here is small and its faults are plain to see.
    assert_eq!(first_of_all, 5);
}

#[test]
fn directory_without_labels_is_named() {
    let empty = tempfile::tempdir().unwrap();
    let path = empty.path().to_str().unwrap();
    firm(["eval", "localise", "--nezha", path])
        .exits(1)
        .says(&["labels.json", path]);
}
