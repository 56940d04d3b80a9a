//! The report: stored study in, tables and one HTML file out.
