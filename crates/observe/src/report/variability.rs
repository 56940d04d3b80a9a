//! Measured variabilities, and how M/M/m, M/G/m and G/G/m do beside the network that answers.

use kendall_report::document::{Cell, Section, Table, Unit};
use kendall_units::exact_f64;

use kendall_fit::open::{Network, Variability};
use kendall_fit::score::Errors;

/// Both tables; nothing where no tier has a variability.
pub(super) fn structures(section: &mut Section, network: &Network) {
    let measured: Vec<(&str, &Variability, f64)> = network
        .centers
        .iter()
        .filter_map(|center| {
            let factor = center.residence.waiting_factor.value;
            Some((center.name.as_str(), center.variability.as_ref()?, factor))
        })
        .collect();
    if measured.is_empty() {
        return;
    }
    section.heading("Measured variabilities");
    section.text(
        "c_a² is the index of dispersion of the arrivals over the shortest time that scrapes allow; c_s² lies \
         between the bounds that the bins of the response time allow in windows in which requests hardly \
         waited. Their mean is the waiting factor of G/G/m by Allen and Cunneen; M/G/m has c_a² = 1, M/M/m \
         both. All four are fitted and scored on the same windows; the network that answers has the fitted \
         factor where the windows tell one, and that of G/G/m where there was too little waiting.",
    );
    section.table(variabilities(&measured));
    section.table(scores(network));
}

fn variabilities(measured: &[(&str, &Variability, f64)]) -> Table {
    let mut table = Table::new("variabilities", "Gaps, service times and waiting factors")
        .column("tier", "Tier", Unit::Text)
        .column("gaps", "c_a²", Unit::Plain(3))
        .column("service_low", "c_s², at least", Unit::Plain(3))
        .column("service_high", "c_s², at most", Unit::Plain(3))
        .column("measured_factor", "Measured factor", Unit::Plain(3))
        .column("used_factor", "Factor in the network", Unit::Plain(3));
    for (tier, found, used) in measured {
        let bound = |pick: fn(&(f64, f64)) -> f64| match &found.service {
            Ok(bounds) => Cell::Number(pick(bounds)),
            Err(why) => Cell::Empty(why.clone()),
        };
        table.push(vec![
            (*tier).into(),
            found
                .gaps
                .as_ref()
                .map_or_else(|why| Cell::Empty(why.clone()), |gaps| Cell::Estimate(gaps.clone())),
            bound(|bounds| bounds.0),
            bound(|bounds| bounds.1),
            Cell::number_or(found.factor().map(|factor| factor.value), "not known"),
            (*used).into(),
        ]);
    }
    table
}

fn scores(network: &Network) -> Table {
    let mut table = Table::new("structures", "Error of the response time, by structure")
        .column("structure", "Structure", Unit::Text)
        .column("windows", "Windows", Unit::Count)
        .column("median_error", "Median error (%)", Unit::Percent)
        .column("worst_error", "Largest error (%)", Unit::Percent);
    let mut push = |name: &str, score: Result<&Errors, &str>| {
        let cell = |pick: &dyn Fn(&Errors) -> f64| match score {
            Ok(score) => Cell::Number(pick(score)),
            Err(why) => Cell::Empty(why.to_owned()),
        };
        table.push(vec![
            name.into(),
            cell(&|score| exact_f64(score.points as u64)),
            cell(&|score| score.median),
            cell(&|score| score.worst),
        ]);
    };
    for structure in &network.structures {
        push(structure.name, structure.score.as_ref().map_err(String::as_str));
    }
    push("the network that answers", network.score.as_ref().ok_or("no window was left"));
    table
}
