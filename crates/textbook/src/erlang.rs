//! Erlang's loss and waiting formulas.

use kendall_keys::Key;
use kendall_queueing::station::{erlang_b, erlang_b_servers, erlang_c, erlang_c_servers};

use crate::fields::{ARRIVAL_RATE, SERVICE_RATE, SERVICE_TIME, WHOLE, need, service_time};
use crate::{Answer, Case, TextbookError};

pub(crate) const KEYS: &[Key] = &[
    Key::number("offered_load_erlang", "a; or a rate and a time"),
    ARRIVAL_RATE,
    SERVICE_TIME,
    SERVICE_RATE,
    Key::new("servers", WHOLE, "m").optional(),
    Key::number("target_probability", "finds the fewest servers that stay below it"),
];

pub(crate) fn solve(mut case: Case<'_>) -> Result<Answer, TextbookError> {
    let section = &mut case.section;
    let rates = ["arrival_rate_per_s", "service_time_s", "service_rate_per_s"];
    let load = match section.number("offered_load_erlang")? {
        Some(load) => {
            if let Some(key) = rates.into_iter().find(|key| section.has(key)) {
                let what = "is beside offered_load_erlang: write one of them";
                return Err(section.problem(key, what).into());
            }
            load
        }
        None if !rates.iter().any(|key| section.has(key)) => {
            let form = "a number (or arrival_rate_per_s and service_time_s)";
            return Err(TextbookError::missing("offered_load_erlang", form));
        }
        None => need(section, "arrival_rate_per_s")? * service_time(section)?,
    };
    let blocking = case.kind == "erlang-b";
    let mut answer = Answer::new(if blocking { "Erlang B" } else { "Erlang C" }, "exact");
    answer.number("offered_load", load, "erlang");
    let target = section.number("target_probability")?;
    let servers = match (section.opt_count("servers")?, target) {
        (Some(_), Some(_)) => {
            let what = "is beside target_probability: write one of them";
            return Err(section.problem("servers", what).into());
        }
        (Some(servers), None) => servers,
        (None, Some(p)) if blocking => erlang_b_servers(load, p)?,
        (None, Some(p)) => erlang_c_servers(load, p)?,
        (None, None) => {
            return Err(TextbookError::missing("servers", "a number (or target_probability)"));
        }
    };
    let m = kendall_units::exact_f64(servers);
    answer.number("servers", m, "servers");
    if blocking {
        let b = erlang_b(load, servers)?;
        answer.number("p_loss", b, "1");
        answer.number("carried_load", load * (1.0 - b), "erlang");
        answer.number("utilization", load * (1.0 - b) / m, "1");
    } else {
        answer.number("p_queueing", erlang_c(load, servers)?, "1");
        answer.number("utilization", load / m, "1");
    }
    Ok(answer)
}
