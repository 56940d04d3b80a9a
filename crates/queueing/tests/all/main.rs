//! Stations, networks and the simulation against published values and each other, as one binary.

mod approximations;
mod blocking;
mod coverage;
mod disciplines;
mod edges;
mod every_solver;
mod forks;
mod hostile;
mod independent;
mod layered;
mod measured;
mod networks;
mod phases;
mod routing;
mod scalability;
mod settling;
mod simulation;
mod stations;
