//! Starts the parts of a run that live as long as it does: the application and the loop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use firm_host::{CpuActuator, LimitWriter};
use firm_mitigator::RulePolicy;
use firm_model::clock::SystemClock;
use firm_model::text::chain;
use firm_model::{Clock, InstanceId};
use firm_store::{EventLog, MemoryBounds, MemoryStore};
use firm_testbed::fleet::{Fleet, FleetConfig, PlaceError};

use super::control::{Control, Message, Outcome, Source};
use super::event::DemoEvent;
use super::plan::Plan;
use super::setup::{DemoError, Mode, Setup};
use super::stage::{Groups, Intake};
use crate::controller::{Controller, Managed};
use crate::telemetry::Telemetry;

/// How often services export their spans.
const EXPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Services whose spans come through the Jaeger client.
fn jaeger_services(setup: &Setup, intake: &Intake) -> Vec<firm_model::Symbol> {
    let services = setup.topology.services.iter();
    services
        .filter(|service| service.tracer == firm_testbed::topology::Tracer::Jaeger)
        .map(|service| intake.names.intern(&service.name))
        .collect()
}

/// Starts the application, each instance in its group before it has done anything.
pub(super) fn start_fleet(
    setup: &Setup,
    plan: &Plan,
    intake: &Intake,
    groups: &Groups,
) -> Result<Fleet, DemoError> {
    let config = FleetConfig {
        program: setup.program.clone(),
        args: setup.service_args.clone(),
        otlp: format!("http://{}", intake.otlp),
        jaeger: intake.jaeger,
        export_interval: EXPORT_INTERVAL,
        cpus: setup.app_cpus.clone(),
        nice: setup.app_nice,
        seed: plan.seed,
    };
    let mut place = |instance: &InstanceId, pid: u32| -> Result<(), PlaceError> {
        match groups.of(instance) {
            Some(group) => Ok(group.app_add_pid(pid)?),
            None => Ok(()),
        }
    };
    Ok(Fleet::start(&setup.topology, &config, &mut place)?)
}

/// Starts the loop's thread.
#[expect(
    clippy::too_many_arguments,
    reason = "the one place where the parts meet"
)]
pub(super) fn start_control(
    setup: &Setup,
    mode: Mode,
    writer: LimitWriter,
    log: EventLog,
    intake: &Intake,
    groups: &Groups,
    fleet: &Fleet,
    messages: Receiver<Message>,
    events: SyncSender<DemoEvent>,
) -> Result<JoinHandle<Outcome>, DemoError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    // One thread more serves the sockets.
    let threads = |name: &str| {
        setup
            .topology
            .service(name)
            .map(|service| service.threads.saturating_add(1))
    };
    let mut actuator = CpuActuator::new(writer, Arc::clone(&clock));
    let mut managed = BTreeMap::new();
    let mut sources = Vec::new();
    for instance in fleet.instances() {
        let group = groups.of(&instance.id).cloned();
        let threads = threads(&instance.service);
        if let Some(group) = &group {
            let added = actuator.add(instance.id.clone(), group.cpu().clone(), threads);
            added.map_err(|error| DemoError::Journal(chain(&error)))?;
        }
        let original = actuator.limit(&instance.id).ok().flatten();
        managed.insert(instance.id.clone(), Managed { original, threads });
        sources.push(Source {
            instance: instance.id.clone(),
            pid: instance.pid,
            group,
        });
    }
    let enforce = groups.why_not_enforced(setup, mode).is_none();
    let mut controller = Controller::new(
        setup.settings.clone(),
        Arc::clone(&intake.names),
        &setup.objectives(),
        managed,
        Box::new(RulePolicy::default()),
        enforce,
    );
    controller.number_findings_from(log.next_finding());
    let control = Control {
        controller,
        sources,
        actuator: enforce.then_some(actuator),
        messages,
        events,
        log,
        store: MemoryStore::new(MemoryBounds::default()),
        clock,
        grace: setup.settings.tracer.grace,
        jaeger: jaeger_services(setup, intake),
        telemetry: Telemetry::default(),
        outcome: Outcome::default(),
        last_note: String::new(),
        unsynced: false,
    };
    std::thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || control.run())
        .map_err(DemoError::io("start the control thread"))
}
