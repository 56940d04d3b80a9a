//! Layered models: model files, and those of LQNS.

use kendall_queueing::lqn::{Copies, Layered, LayeredSolution, Role};
use kendall_queueing::solver::Caveat;
use kendall_report::document::{Cell, Level, Section, Table, Unit};
use serde_json::{Value, json};

use super::human::TIME;

const SOLVER: &str = "method of layers";

fn tables(model: &Layered, s: &LayeredSolution) -> [Table; 5] {
    let tasks = || model.tasks.iter().zip(&s.tasks);
    let customers = tasks().filter_map(|(task, result)| match task.role {
        Role::Reference { population, .. } => Some((&task.name, population, result)),
        Role::Server(_) => None,
    });
    let entries = || model.entries.iter().zip(&s.entries);
    let phases = entries().flat_map(|(entry, result)| {
        let phases = (1_u64..).zip(&result.phases);
        phases.map(move |(number, phase)| (entry, result, number, phase))
    });
    let calls = phases
        .clone()
        .flat_map(|(entry, _, number, phase)| phase.calls.iter().map(move |c| (entry, number, c)));
    let copies = |copies| match copies {
        Copies::Limited(count) => Cell::Count(count),
        Copies::Unlimited => Cell::Text("unlimited".to_owned()),
    };
    let servers = tasks().filter_map(|(task, result)| match task.role {
        Role::Server(threads) => Some((&task.name, copies(threads), result)),
        Role::Reference { .. } => None,
    });
    [
        Table::of("classes", "Customers", customers)
            .column("name", "reference task", Unit::Text, |(name, ..)| name.as_str())
            .column("population", "N", Unit::Count, |(_, population, _)| *population)
            .column("throughput_per_s", "throughput", Unit::Rate, |(.., r)| r.throughput)
            .column("system_response_time_mean_s", "response", TIME, |(.., r)| r.response)
            .table(),
        Table::of("entries", "Entries", phases)
            .column("name", "entry", Unit::Text, |(entry, ..)| entry.name.as_str())
            .column("task", "task", Unit::Text, |(e, ..)| model.tasks[e.task].name.as_str())
            .column("phase", "phase", Unit::Count, |(_, _, number, _)| *number)
            .column("throughput_per_s", "throughput", Unit::Rate, |(_, r, ..)| r.throughput)
            .column("service_time_mean_s", "service", TIME, |(.., phase)| phase.service_time)
            .column("processor_waiting_time_mean_s", "wait for processor", TIME, |(.., phase)| {
                phase.processor_waiting
            })
            .column("arrival_waiting_time_mean_s", "wait of arrivals", TIME, |(_, r, number, _)| {
                r.arrival_waiting.filter(|_| *number == 1)
            })
            .table(),
        Table::of("calls", "Calls", calls)
            .column("from", "from", Unit::Text, |(entry, ..)| entry.name.as_str())
            .column("phase", "phase", Unit::Count, |(_, number, _)| *number)
            .column("to", "to", Unit::Text, |(.., call)| model.entries[call.entry].name.as_str())
            .column("kind", "kind", Unit::Text, |(.., call)| match (call.synchronous, call.fork) {
                (_, Some(_)) => "at once",
                (true, None) => "synchronous",
                (false, None) => "asynchronous",
            })
            .column("number_mean", "number", Unit::Number, |(.., call)| call.number)
            .column("waiting_time_mean_s", "wait for a thread", TIME, |(.., call)| call.waiting)
            .table(),
        Table::of("tasks", "Tasks", servers)
            .column("name", "task", Unit::Text, |(name, ..)| name.as_str())
            .column("threads", "threads", Unit::Count, |(_, threads, _)| threads.clone())
            .column("throughput_per_s", "throughput", Unit::Rate, |(.., r)| r.throughput)
            .column("busy_mean", "busy", Unit::Number, |(.., r)| r.busy)
            .column("utilization", "utilization", Unit::Number, |(.., r)| r.utilization)
            .table(),
        Table::of("processors", "Processors", model.processors.iter().zip(&s.processors))
            .column("name", "processor", Unit::Text, |(processor, _)| processor.name.as_str())
            .column("servers", "cores", Unit::Count, |(p, _)| copies(p.copies))
            .column("busy_mean", "busy", Unit::Number, |(_, r)| r.busy)
            .column("utilization", "utilization", Unit::Number, |(_, r)| r.utilization)
            .table(),
    ]
}

fn caveats(s: &LayeredSolution) -> Vec<String> {
    vec![Caveat::MeasuredError(s.measured_error).to_string()]
}

pub(super) fn human(model: &Layered, s: &LayeredSolution) -> Section {
    let mut document =
        Section::new("solution", if model.name.is_empty() { "model" } else { &model.name });
    document.text(format!("solver  {SOLVER} (approximation)"));
    for table in tables(model, s) {
        document.table(table);
    }
    let (rounds, change) = s.iterations;
    document.text(format!("settled after {rounds} rounds, last change {change:.1e}"));
    for caveat in caveats(s) {
        document.note(Level::Doubt, caveat);
    }
    document
}

pub(super) fn json(model: &Layered, s: &LayeredSolution) -> Value {
    let mut value = json!({
        "model": model.name, "solver": SOLVER, "accuracy": "approximation", "caveats": caveats(s),
        "iteration_rounds": s.iterations.0, "iteration_last_change": s.iterations.1,
    });
    for table in tables(model, s) {
        value[table.id.as_str()] = table.objects().into();
    }
    value
}
