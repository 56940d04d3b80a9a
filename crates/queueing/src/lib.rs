//! Queueing models: single stations, networks, bounds, approximations, simulation, scalability law.
