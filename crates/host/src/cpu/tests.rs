use super::*;
use proptest::prelude::*;

use crate::mounts::Mounts;

fn quotas() -> impl Strategy<Value = CpuQuota> {
    let quota = proptest::option::of(1_u64..1_000_000_000_000);
    (quota, 1_u64..=1_000_000).prop_map(|(quota_us, period_us)| CpuQuota {
        quota_us,
        period_us,
    })
}

proptest! {
    #[test]
    fn both_forms_read_back(quota in quotas()) {
        prop_assert_eq!(CpuQuota::parse_v2(&quota.format_v2()).unwrap(), quota);
        let period = quota.period_us.to_string();
        prop_assert_eq!(CpuQuota::parse_v1(&quota.format_v1(), &period).unwrap(), quota);
        let with_newline = format!("{}\n", quota.format_v2());
        prop_assert_eq!(CpuQuota::parse_v2(&with_newline).unwrap(), quota);
    }

    #[test]
    fn any_text_is_refused_or_read(text in ".{0,40}") {
        let _ = CpuQuota::parse_v2(&text);
        let _ = CpuQuota::parse_v1(&text, &text);
    }

    #[test]
    fn a_limit_keeps_its_rules(
        milli in 0_u64..10_000_000, period in 1_000_u64..=1_000_000,
        burst in 0_u64..50_000, threads in proptest::option::of(1_u32..512),
    ) {
        let quota = CpuQuota::from_limit(MilliCores::new(milli), period, burst, threads);
        let us = quota.quota_us.unwrap();
        prop_assert!(us >= MIN_QUOTA_US && us >= burst);
        if let Some(n) = threads {
            prop_assert!(us <= (u64::from(n) * period).max(MIN_QUOTA_US).max(burst));
        }
    }

    #[test]
    fn limits_of_whole_quotas_come_back(milli in 10_u64..1_000_000) {
        // At 100 ms a thousandth of a core is 100 us: exact from 10 m (1 ms) up.
        let limit = MilliCores::new(milli);
        let quota = CpuQuota::from_limit(limit, DEFAULT_PERIOD_US, 0, None);
        prop_assert_eq!(quota.limit(), Some(limit));
    }
}

#[test]
fn known_values() {
    let quota = |m, threads| {
        CpuQuota::from_limit(MilliCores::new(m), 100_000, 0, threads)
            .quota_us
            .unwrap()
    };
    assert_eq!(quota(250, None), 25_000);
    assert_eq!(quota(1, None), 1_000, "the kernel takes no less than 1 ms");
    assert_eq!(
        quota(5_000, Some(2)),
        200_000,
        "two threads can use two cores"
    );
    assert_eq!(quota(u64::MAX, None), MAX_QUOTA_US);
    assert_eq!(CpuQuota::UNLIMITED.limit(), None);
    assert_eq!(CpuQuota::UNLIMITED.format_v1(), "-1");
    assert_eq!(CpuQuota::parse_v2("max 100000\n"), Ok(CpuQuota::UNLIMITED));
    assert!(CpuQuota::parse_v2("50000").is_err());
    assert!(CpuQuota::parse_v2("50000 0").is_err());
    assert!(CpuQuota::parse_v2("-1 100000").is_err());
}

/// A made tree: checks names and text only; what a kernel does is in `tests/kernel.rs`.
fn tree(table: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, CpuGroup) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    }
    let table = table.replace("DIR", &dir.path().display().to_string());
    let layout = Mounts::parse(&table).cpu_layout().unwrap();
    let group = CpuGroup::at(&layout, Path::new("pod/app"));
    (dir, group)
}

const V1_TABLE: &str = "1 2 0:1 / DIR/cpu rw - cgroup c rw,cpu\n\
                        1 2 0:2 / DIR/acct rw - cgroup c rw,cpuacct\n";
const V2_TABLE: &str = "1 2 0:1 / DIR rw - cgroup2 c rw\n";

#[test]
fn v1_counters_come_from_two_hierarchies() {
    let (dir, group) = tree(
        V1_TABLE,
        &[
            (
                "cpu/pod/app/cpu.stat",
                "nr_periods 9\nnr_throttled 4\nthrottled_time 77\n",
            ),
            ("cpu/pod/app/cpu.cfs_quota_us", "25000\n"),
            ("cpu/pod/app/cpu.cfs_period_us", "50000\n"),
            ("cpu/pod/cpu.cfs_quota_us", "60000\n"),
            ("cpu/pod/cpu.cfs_period_us", "50000\n"),
            ("acct/pod/app/cpuacct.usage", "123456\n"),
        ],
    );
    let at = Monotonic::from_nanos(5);
    let expected = CpuSample {
        at,
        usage_ns: Some(123_456),
        periods: Some(9),
        throttled_periods: Some(4),
        throttled_ns: Some(77),
    };
    assert_eq!(group.sample(at).unwrap(), expected);
    assert_eq!(
        group.quota().unwrap().unwrap().limit(),
        Some(MilliCores::new(500))
    );
    let above = group.limiting_ancestors().unwrap();
    assert_eq!(above.len(), 1);
    assert_eq!(above[0].quota_dir(), dir.path().join("cpu/pod"));
    fs_err::write(dir.path().join("acct/pod/app/cpuacct.usage"), "many").unwrap();
    assert!(
        group.sample(at).is_err(),
        "there and unreadable is an error"
    );
}

#[test]
fn v2_counters_are_microseconds_and_may_be_absent() {
    let (_dir, group) = tree(
        V2_TABLE,
        &[
            ("cgroup.controllers", "cpu memory\n"),
            (
                "pod/app/cpu.stat",
                "usage_usec 12\nuser_usec 3\nsystem_usec 9\n",
            ),
            ("pod/app/cpu.max.burst", "7000\n"),
        ],
    );
    let sample = group.sample(Monotonic::from_nanos(5)).unwrap();
    assert_eq!((sample.usage_ns, sample.periods), (Some(12_000), None));
    assert_eq!(group.burst_us().unwrap(), 7000);
    assert_eq!(group.quota().unwrap(), None, "cpu.max is absent");
    assert_eq!(group.quota_text(&CpuQuota::UNLIMITED), "max 100000");
}
