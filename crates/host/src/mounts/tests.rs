use super::*;
use proptest::prelude::*;

const SEPARATE: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
const TOGETHER: &str = "\
26 18 0:23 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
27 18 0:24 /docker/ab /mnt/my\\040cpu ro,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
";

fn proc_with(pid: u32, cgroup: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join(pid.to_string());
    fs_err::create_dir_all(&folder).unwrap();
    fs_err::write(folder.join("cgroup"), cgroup).unwrap();
    dir
}

#[test]
fn controllers_mounted_apart() {
    let layout = Mounts::parse(SEPARATE).cpu_layout().unwrap();
    assert_eq!(layout.version, CgroupVersion::V1);
    assert_eq!(layout.quota.point, Path::new("/sys/fs/cgroup/cpu"));
    assert_eq!(
        layout.usage.unwrap().point,
        Path::new("/sys/fs/cgroup/cpuacct")
    );
}

#[test]
fn controllers_mounted_together_and_bind_mounts() {
    let mounts = Mounts::parse(TOGETHER);
    let layout = mounts.cpu_layout().unwrap();
    assert_eq!(layout.quota.point, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
    assert_eq!(layout.usage, Some(layout.quota));
    let bind = &mounts.mounts[1];
    assert!(bind.read_only);
    assert_eq!(bind.point, Path::new("/mnt/my cpu"));
    // The bind mount shows /docker/ab as its own root.
    let proc = proc_with(7, "4:cpu,cpuacct:/docker/ab/app\n0::/\n");
    assert_eq!(
        bind.group_of_pid(proc.path(), 7).unwrap(),
        Path::new("/mnt/my cpu/app")
    );
    let other = proc_with(7, "4:cpu,cpuacct:/docker/abc\n");
    assert!(matches!(
        bind.group_of_pid(other.path(), 7),
        Err(MountsError::Invisible { .. })
    ));
}

#[test]
fn unified_without_the_cpu_controller_is_unsupported() {
    let dir = tempfile::tempdir().unwrap();
    let table = format!(
        "41 31 0:38 / {} rw - cgroup2 none rw\n",
        dir.path().display()
    );
    let list = dir.path().join("cgroup.controllers");
    fs_err::write(&list, "memory io\n").unwrap();
    let why = Mounts::parse(&table).cpu_layout().unwrap_err().to_string();
    assert!(why.contains("does not list the cpu controller"), "{why}");
    fs_err::write(&list, "cpuset cpu io\n").unwrap();
    assert_eq!(
        Mounts::parse(&table).cpu_layout().unwrap().version,
        CgroupVersion::V2
    );
    assert!(Mounts::parse("").cpu_layout().is_err());
}

#[test]
fn group_comes_from_the_table_of_the_process() {
    let mounts = Mounts::parse(SEPARATE);
    let proc = proc_with(7, "2:cpuacct:/\n1:cpu:/a b/c:d (deleted)\n0::/x\n");
    let cpu = mounts.v1("cpu").unwrap();
    assert_eq!(
        cpu.group_of_pid(proc.path(), 7).unwrap(),
        Path::new("/sys/fs/cgroup/cpu/a b/c:d")
    );
    let acct = mounts.v1("cpuacct").unwrap();
    assert_eq!(
        acct.group_of_pid(proc.path(), 7).unwrap(),
        Path::new("/sys/fs/cgroup/cpuacct")
    );
    assert_eq!(
        mounts.v2().unwrap().group_of_pid(proc.path(), 7).unwrap(),
        Path::new("/sys/fs/cgroup/unified/x")
    );
    assert!(cpu.group_of_pid(proc.path(), 8).is_err());
    let outside = proc_with(7, "1:cpu:/../x\n");
    assert!(cpu.group_of_pid(outside.path(), 7).is_err());
    let none = proc_with(7, "3:memory:/\n");
    assert!(matches!(
        cpu.group_of_pid(none.path(), 7),
        Err(MountsError::NoGroup { pid: 7, .. })
    ));
}

proptest! {
    #[test]
    fn any_table_is_read_without_panic(text in ".{0,400}") {
        let _ = Mounts::parse(&text);
        let line = format!("1 2 0:1 / /x rw - cgroup c {}", text.replace(['\n', ' '], ""));
        prop_assert!(Mounts::parse(&line).v2().is_none());
    }

    #[test]
    fn escaped_mount_points_read_back(name in "[ -~]{1,40}") {
        let escaped: String = name
            .chars()
            .map(|c| match c {
                ' ' => "\\040".to_owned(),
                '\\' => "\\134".to_owned(),
                other => other.to_string(),
            })
            .collect();
        let table = format!("1 2 0:1 / /{escaped} rw - cgroup c rw,cpu");
        let mounts = Mounts::parse(&table);
        let expected = PathBuf::from(format!("/{name}"));
        prop_assert_eq!(&mounts.v1("cpu").unwrap().point, &expected);
    }
}
