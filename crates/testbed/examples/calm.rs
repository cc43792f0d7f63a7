//! How calm a topology is under its own load: latencies by request type and CPU use by instance,
//! as one JSON line at the end. Made for choosing rates and quotas.
//!
//! `calm FILE SECONDS CPU [GROUP]`: instances run on CPU; where GROUP is given, each is put into
//! the cgroup `GROUP/INSTANCE/app`, which must exist. Spans go to a sink that drops them.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use firm_testbed::Topology;
use firm_testbed::fleet::{Fleet, FleetConfig};
use firm_testbed::load::{LoadConfig, LoadGenerator};
use http_body_util::{BodyExt as _, Empty};
use hyper::Response;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use nix::unistd::Pid;

type Error = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|first| first == "service") {
        return Ok(firm_testbed::service::run_service()?);
    }
    let [file, seconds, cpu, group @ ..] = args.as_slice() else {
        return Err("usage: calm FILE SECONDS CPU [GROUP]".into());
    };
    let topology = Topology::parse(file, &fs_err::read_to_string(file)?)?;
    let config = FleetConfig {
        program: std::env::current_exe()?,
        args: vec!["service".to_owned()],
        otlp: format!("http://{}", sink()?),
        jaeger: SocketAddr::from((Ipv4Addr::LOCALHOST, 9)),
        export_interval: Duration::from_millis(100),
        cpus: vec![cpu.parse()?],
        nice: None,
        seed: 1,
    };
    let fleet = Fleet::start(&topology, &config, &mut |id, pid| {
        if let [group] = group {
            let procs = PathBuf::from(group)
                .join(id.as_str())
                .join("app/cgroup.procs");
            let mut procs = fs_err::OpenOptions::new().write(true).open(procs)?;
            procs.write_all(pid.to_string().as_bytes())?;
        }
        Ok(())
    })?;
    let load = LoadConfig::of(&topology, &fleet, 1)?;
    let warm = Duration::from_secs(2);
    let load = LoadGenerator::start(load, |_| {})?;
    std::thread::sleep(warm);
    let used = || -> BTreeMap<String, f64> {
        let used = |pid: u32| {
            let pid = Pid::from_raw(i32::try_from(pid).ok()?);
            let clock = nix::time::clock_getcpuclockid(pid).ok()?;
            Some(Duration::from(clock.now().ok()?).as_secs_f64())
        };
        let of = |one: &firm_testbed::fleet::Instance| Some((one.id.to_string(), used(one.pid)?));
        fleet.instances().iter().filter_map(of).collect()
    };
    let before = used();
    let earlier = load.report();
    let length: f64 = seconds.parse()?;
    std::thread::sleep(Duration::try_from_secs_f64(length)?);
    let milli: BTreeMap<String, f64> = used()
        .into_iter()
        .map(|(name, now)| {
            let used = now - before.get(&name).copied().unwrap_or_default();
            (name, (used / length * 10_000.0).round() / 10.0)
        })
        .collect();
    let total: f64 = milli.values().sum();
    let mut types = BTreeMap::new();
    for (mut now, then) in load.stop().into_iter().zip(earlier) {
        now.latency.subtract(&then.latency)?;
        let at = |quantile: f64| now.latency.value_at_quantile(quantile) as f64 / 1e6;
        let figures = serde_json::json!({
            "ok": now.ok - then.ok,
            "failed": now.total() - now.ok - (then.total() - then.ok),
            "ms": { "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": at(1.0) },
        });
        types.insert(now.request_type.to_string(), figures);
    }
    fleet.stop(Duration::from_secs(1))?;
    let figures = serde_json::json!({ "types": types, "milli_cpu": milli, "total": total });
    firm_child::send(&mut std::io::stdout(), &figures)?;
    Ok(())
}

/// Takes and drops exports until the process ends.
fn sink() -> Result<SocketAddr, Error> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            loop {
                let (stream, _) = listener.accept().await?;
                let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| async {
                    request.into_body().collect().await?;
                    Ok::<_, hyper::Error>(Response::new(Empty::<Bytes>::new()))
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move { connection.await.is_ok() });
            }
            #[expect(unreachable_code, reason = "names the error's type")]
            Ok::<(), std::io::Error>(())
        })
    });
    Ok(address)
}
