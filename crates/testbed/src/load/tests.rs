use super::*;
use crate::topology::Arrivals;

use bytes::Bytes;
use firm_model::{Latency, Quantile};
use http_body_util::Empty;
use hyper::{Response, StatusCode};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicUsize;
use tokio::net::TcpListener;

/// Serves on a thread of its own until the test's process ends.
fn server<F, A>(answer: F) -> SocketAddr
where
    F: Fn() -> A + Clone + Send + 'static,
    A: Future<Output = StatusCode> + Send + 'static,
{
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            crate::http::serve(listener, move |_| {
                let answer = answer();
                async move {
                    let mut response = Response::new(Empty::<Bytes>::new());
                    *response.status_mut() = answer.await;
                    response
                }
            })
            .await
        })
    });
    receiver.recv().unwrap()
}

fn config(address: SocketAddr, rate: f64, duration: Duration) -> LoadConfig {
    LoadConfig {
        requests: vec![LoadRequest {
            service: "shop".to_owned(),
            operation: "buy".to_owned(),
            address,
            share: 1.0,
        }],
        rate,
        arrivals: Arrivals::Constant,
        seed: 1,
        duration: Some(duration),
        timeout: Duration::from_secs(30),
        max_in_flight: 10_000,
        cpus: Vec::new(),
    }
}

fn collect(config: LoadConfig) -> (Vec<RequestRecord>, Vec<TypeReport>) {
    let (sender, records) = std::sync::mpsc::channel();
    let load = LoadGenerator::start(config, move |record| {
        sender.send(record.clone()).unwrap();
    });
    let report = load.unwrap().wait();
    let mut records: Vec<RequestRecord> = records.try_iter().collect();
    records.sort_by_key(|record| record.intended);
    (records, report)
}

/// Request 50 of 200, one each 10 ms, finds the server stalled for 1 s, and so do all others
/// that come meanwhile. The 51 that were due in the first half of the stall wait at least half a
/// second each. A generator that waits for answers would see one slow request.
#[test]
fn a_stalled_server_shows_in_every_request_that_was_due() {
    let (stall, watch) = tokio::sync::watch::channel(false);
    let (stall, count) = (Arc::new(stall), Arc::new(AtomicUsize::new(0)));
    let address = server(move || {
        let (stall, count, mut watch) = (stall.clone(), count.clone(), watch.clone());
        async move {
            if count.fetch_add(1, Ordering::SeqCst) == 50 {
                stall.send_replace(true);
                tokio::time::sleep(Duration::from_secs(1)).await;
                stall.send_replace(false);
            }
            watch.wait_for(|stalled| !*stalled).await.unwrap();
            StatusCode::OK
        }
    });
    let (records, report) = collect(config(address, 100.0, Duration::from_secs(2)));
    assert_eq!(records.len(), 200);
    assert!(records.iter().all(|record| record.outcome == Outcome::Ok));
    let grid = records
        .windows(2)
        .map(|pair| pair[1].intended.nanos_since(pair[0].intended));
    assert!(
        grid.into_iter()
            .all(|gap| (9_999_998..=10_000_002).contains(&gap))
    );
    for (index, record) in records.iter().enumerate().skip(50).take(100) {
        let due_into_stall = 10 * (index as u64 - 50);
        let least = Latency::from_millis(1000 - due_into_stall);
        assert!(
            record.latency >= least,
            "{index}: {} < {least}",
            record.latency
        );
    }
    let half = Latency::from_millis(500);
    assert!(
        records
            .iter()
            .filter(|record| record.latency >= half)
            .count()
            >= 51
    );
    // 151 of 200 requests were not hit by the first half, so the third quartile may or may not
    // show the stall; the 90th percentile must.
    assert!(report[0].quantile(Quantile::new(0.9).unwrap()) >= half);
    assert_eq!((report[0].ok, report[0].total()), (200, 200));
}

#[test]
fn what_exceeds_the_bound_in_flight_is_dropped_and_what_hangs_times_out() {
    let address = server(std::future::pending::<StatusCode>);
    let mut config = config(address, 100.0, Duration::from_millis(200));
    config.max_in_flight = 5;
    config.timeout = Duration::from_secs(2);
    let (records, report) = collect(config);
    assert_eq!(records.len(), 20);
    assert_eq!((report[0].timeouts, report[0].dropped), (5, 15));
    let timeout = Latency::from_millis(2000);
    let waited = |record: &RequestRecord| record.latency >= timeout;
    assert_eq!(records.iter().filter(|record| waited(record)).count(), 5);
    assert_eq!(report[0].latency.len(), 5);
}

#[test]
fn refusals_and_dead_peers_are_errors() {
    let refusing = server(|| async { StatusCode::INTERNAL_SERVER_ERROR });
    let closed = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let dead = closed.local_addr().unwrap();
    drop(closed);
    for address in [refusing, dead] {
        let (_, report) = collect(config(address, 200.0, Duration::from_millis(50)));
        assert_eq!((report[0].errors, report[0].total()), (10, 10));
    }
}

#[test]
fn the_rate_can_be_stopped_and_raised() {
    let address = server(|| async { StatusCode::OK });
    let (sender, records) = std::sync::mpsc::channel();
    let mut config = config(address, 50.0, Duration::from_secs(3600));
    config.duration = None;
    let load = LoadGenerator::start(config, move |record| {
        sender.send(record.clone()).unwrap();
    })
    .unwrap();
    for wrong in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(load.set_rate_factor(wrong).is_err());
    }
    load.control().set_rate_factor(20.0).unwrap();
    let fast: Vec<RequestRecord> = records.iter().take(200).collect();
    // At factor 1 they would take 4 s. Gaps of 1 ms in the schedule do not depend on how fast
    // this machine is.
    let mut intended: Vec<Timestamp> = fast.iter().map(|record| record.intended).collect();
    intended.sort_unstable();
    let gaps = intended
        .windows(2)
        .skip(100)
        .map(|pair| pair[1].nanos_since(pair[0]));
    assert!(
        gaps.into_iter()
            .all(|gap| (999_998..=1_000_002).contains(&gap))
    );
    load.set_rate_factor(0.0).unwrap();
    let report = load.stop();
    assert_eq!(report[0].ok, report[0].total());
}

#[test]
fn a_load_of_nothing_is_refused() {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let right = config(address, 1.0, Duration::ZERO);
    for wrong in [
        LoadConfig {
            requests: Vec::new(),
            ..right.clone()
        },
        LoadConfig {
            rate: f64::NAN,
            ..right.clone()
        },
        LoadConfig { rate: 0.0, ..right },
    ] {
        assert!(matches!(
            LoadGenerator::start(wrong, |_| {}),
            Err(LoadError::Nothing)
        ));
    }
}
