//! Layered models: model files, and those of LQNS.

use kendall_queueing::lqn::{Copies, Layered, LayeredSolution, Role};
use kendall_queueing::solver::Caveat;
use kendall_report::document::{Cell, Level, Section, Table, Unit};
use kendall_report::plot::network::{Center, Network, Way};
use kendall_units::exact_f64;
use serde_json::{Value, json};

use super::human::TIME;

const SOLVER: &str = "method of layers";
/// Tasks and processors of a picture that can still be read.
const MOST_CENTERS: usize = 60;

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
    let unknown = || {
        "error unknown: it was measured on models of up to four layers and 800 customers of a task, with more than \
         eight only with exponential slices and one further feature (docs/models.md)"
            .to_owned()
    };
    let known = s.measured_error.map(|error| Caveat::MeasuredError(error).to_string());
    vec![known.unwrap_or_else(unknown)]
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

/// Tasks before the tasks that they call, and their processors; customers call from outside. `None` where
/// there are too many.
pub(super) fn network(model: &Layered, s: &LayeredSolution) -> Option<Network> {
    if model.tasks.len() + model.processors.len() > MOST_CENTERS {
        return None;
    }
    let mut source = vec!["customers".to_owned()];
    let mut centers = Vec::new();
    let mut place = Vec::new();
    for (task, result) in model.tasks.iter().zip(&s.tasks) {
        let copies = match task.role {
            Role::Reference { population, .. } => {
                source.push(format!("{}: N = {population}", task.name));
                place.push(None);
                continue;
            }
            Role::Server(copies) => copies,
        };
        place.push(Some(centers.len()));
        let on = format!("on {}", model.processors[task.processor].name);
        centers.push(center(&task.name, on, (copies, "thread"), (result.busy, result.utilization)));
    }
    let mut runs = Vec::new();
    for (processor, result) in model.processors.iter().zip(&s.processors) {
        // Customers who only think are on some processor too.
        runs.push(Some(centers.len()).filter(|_| result.busy > 0.0));
        if result.busy <= 0.0 {
            continue;
        }
        let about = (processor.copies, "core");
        let kind = "processor".to_owned();
        centers.push(center(&processor.name, kind, about, (result.busy, result.utilization)));
    }
    let mut ways: Vec<Way> = Vec::new();
    let mut add = |from: Option<usize>, to: Option<usize>| {
        let known = ways.iter().any(|way| (way.from, way.to) == (from, to));
        if !known && to.is_some() {
            ways.push(Way { from, to, label: String::new() });
        }
    };
    for entry in &model.entries {
        let own = place[entry.task];
        if entry.arrival_rate > 0.0 {
            add(None, own);
        }
        let phases = || entry.phases.iter();
        let at_once = phases().flat_map(|p| p.forks.iter().flat_map(|fork| &fork.entries));
        let calls = phases().flat_map(|p| p.calls.iter().map(|call| &call.entry));
        let forwards = entry.forwards.iter().map(|(to, _)| to);
        for called in calls.chain(at_once).chain(forwards) {
            add(own, place[model.entries[*called].task]);
        }
        if phases().any(|phase| phase.demand > 0.0) {
            add(own, runs[model.tasks[entry.task].processor]);
        }
    }
    Some(Network {
        description: format!(
            "{}: tasks with their threads, whom they call, and the processors that they run on; each \
             thread or core is filled as far as it is busy.",
            if model.name.is_empty() { "The layered model" } else { &model.name }
        ),
        closed: source.len() > 1,
        source,
        centers,
        ways,
    })
}

fn center(
    name: &str,
    kind: String,
    (copies, word): (Copies, &str),
    (busy, utilization): (f64, Option<f64>),
) -> Center {
    let mut lines = vec![name.to_owned(), kind];
    let servers = match copies {
        Copies::Limited(count) => {
            lines.push(kendall_units::counted(count, word));
            Some(exact_f64(count))
        }
        Copies::Unlimited => {
            lines.push(format!("unlimited {word}s"));
            None
        }
    };
    let used = utilization.map(|used| format!("U = {} %, ", Unit::Percent.print(used)));
    lines.push(format!("{}busy = {}", used.unwrap_or_default(), Unit::Number.print(busy)));
    Center { lines, servers, utilization }
}
