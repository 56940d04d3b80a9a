//! Studies: designs, runs at toy size, interruptions, comparisons and predictions.

mod compare_in_turns;
mod compare_results;
mod console;
mod designs;
mod documented_answers;
mod export;
mod factor_tuples;
mod first_answer;
mod gallery;
mod init_study;
mod interrupted_study;
mod kill_campaign;
mod predict;
mod program_loads;
mod published;
mod refused_studies;
mod report_several;
#[path = "../support/mod.rs"]
mod support;
