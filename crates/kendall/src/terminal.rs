//! How much room a terminal has.

/// One of the two streams that are printed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Result,
    Error,
}

/// How wide a stream is: as `COLUMNS` says, else as the terminal does; `None` where it is none.
pub(crate) fn columns(of: Stream) -> Option<u16> {
    let stated = std::env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok());
    stated.filter(|columns| *columns > 0).or_else(|| {
        let mut table = comfy_table::Table::new();
        if of == Stream::Error {
            table.use_stderr();
        }
        table.width()
    })
}
