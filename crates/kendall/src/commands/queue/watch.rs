//! `kendall queue watch`: what the queues hold, every second.

use std::io::IsTerminal as _;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use super::call::{Caller, unknown_queue};
use super::show;
use crate::exit::Exit;
use crate::output::{self, Format};

const PERIOD: Duration = Duration::from_secs(1);
/// Queues that are shown where none was named.
const SHOWN: usize = 100;
/// Puts a terminal's cursor on top and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

pub(super) async fn watch(
    mut caller: Caller,
    wanted: Vec<String>,
    times: Option<u64>,
) -> anyhow::Result<Exit> {
    let me = caller.me().await?;
    let clear = caller.format == Format::Human && std::io::stdout().is_terminal();
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut left = times.unwrap_or(u64::MAX);
    while left > 0 {
        ticks.tick().await;
        left -= 1;
        let queues = caller.queues_for(me, true).await?;
        if let Some(unknown) = wanted.iter().find(|name| !queues.contains_key(*name)) {
            return Err(unknown_queue(unknown, &queues));
        }
        let chosen: Vec<u64> = if wanted.is_empty() {
            queues.values().copied().take(SHOWN).collect()
        } else {
            wanted.iter().map(|name| queues[name]).collect()
        };
        let not_shown = if wanted.is_empty() { queues.len() - chosen.len() } else { 0 };
        let mut rows: Vec<Value> = Vec::new();
        for queue_id in chosen {
            rows.push(caller.statistics(queue_id).await?);
        }
        let text = match caller.format {
            Format::Json => json!({ "queues": rows, "queues_not_shown": not_shown }).to_string(),
            Format::Human => show::watched(&rows, not_shown),
        };
        let before = if clear { CLEAR } else { "" };
        // The reader is gone: that is an end, and no failure.
        if output::written(&format!("{before}{text}")).is_err() {
            break;
        }
    }
    Ok(Exit::Done)
}
