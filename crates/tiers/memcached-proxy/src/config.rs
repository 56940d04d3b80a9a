//! The file of which the flags of `kendall serve proxy` are a short form.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kendall_keys::{Form, Key, Lines, Problem, Quantity, Section, join, line_of};
use kendall_tier::serve::{Tls, TlsError};
use kendall_units::{parse_bytes, parse_seconds, parse_share};
use rustix::net::SocketAddrUnix;
use toml::{Table, Value};

use crate::options::{
    Address, MILLION, Mode, Options, Placement, Pool, Route, Server, Shadow, WarmUp,
};
use crate::tls::{ClientTls, ServerTls};

/// A file that cannot be used. A proxy that runs keeps the configuration that it has.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}:{line}: {what}", path.display())]
    Syntax { path: PathBuf, line: usize, what: String },
    #[error("{}:{line}: {problem}", path.display())]
    Key { path: PathBuf, line: usize, problem: Problem },
    /// The same, where it is not known which file has it.
    #[error(transparent)]
    Value(#[from] Problem),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

static TIME: Quantity =
    Quantity { name: "a time", example: "`500ms` or `1h`", check: |text| time(text).map(drop) };
static SIZE: Quantity =
    Quantity { name: "a size", example: "`1MiB`", check: |text| size(text).map(drop) };
static SHARE: Quantity =
    Quantity { name: "a share", example: "`10%`", check: |text| share(text).map(drop) };

/// Keys of the whole file that flags do not set.
pub const CONFIG: &[Key] = &[
    Key::text("listen", "address for clients; --listen overrides it").optional(),
    Key::new("tls", Form::Table(&[TLS]), "TLS for clients of `listen`").optional(),
    Key::text("pool", "pool of the keys without a route, if there are several pools").optional(),
    Key::new(
        "pools",
        Form::Named(&Form::Table(&[POOL])),
        "servers that hold the same keys, by name",
    ),
    Key::new("routes", Form::Tables(&[ROUTE]), "keys that go to a pool of their own").optional(),
];

/// Keys of the whole file that are also flags, as those of a pool are.
pub const SETTINGS: &[Key] = &[
    Key::text("listen_unix", "socket in the file system for clients of this machine").optional(),
    Key::count(
        "threads",
        1,
        64,
        "network threads; workers, queue and clients are divided among them",
    )
    .or("1"),
    Key::choice(
        "mode",
        &["worker", "pipelined"],
        "how requests reach the servers; by default `worker` where `workers` is set, else `pipelined`",
    )
    .optional(),
    Key::count("workers", 1, 4096, "requests in service at once, in mode `worker`").or("64"),
    Key::count("connections", 1, 64, "connections to each server, in mode `pipelined`").or("1"),
    Key::count("queue", 0, 100_000_000, "requests that may wait for a worker, in mode `worker`").or("100000"),
    Key::count("max_clients", 1, 10_000_000, "clients that may be connected").or("16384"),
    Key::quantity("max_value", &SIZE, "longest value; as memcached's -I").or("\"1MiB\""),
];

pub const TLS: &[Key] = &[
    Key::text("certificate", "file of the certificate chain (PEM)"),
    Key::text("key", "file of its private key (PEM)"),
    Key::text(
        "client_authority",
        "authority (PEM) of client certificates, which clients then need",
    )
    .optional(),
];

/// Keys of `[pools.NAME]`.
pub const POOL: &[Key] = &[
    Key::new(
        "servers",
        Form::Texts,
        "`HOST:PORT` or `unix:PATH` of each; `:WEIGHT` behind it is its share of the keys, beside the others'",
    ),
    Key::texts("failover", "servers that replace ejected ones"),
    Key::choice("placement", &["replicate", "hash"], "writes to all and reads in turn, or ketama")
        .or("\"replicate\""),
    Key::text(
        "hash_tag",
        "the two marks around the part of a key that places it, in placement `hash`",
    )
    .optional(),
    Key::flag("shard_multigets", "splits a get of several keys over all servers").optional(),
    Key::text(
        "authority",
        "authority (PEM) of the servers' certificates: TLS is used to reach them",
    )
    .optional(),
    Key::text("server_name", "name in those certificates; by default the servers' address")
        .optional(),
    Key::quantity(
        "timeout",
        &TIME,
        "longest time without a byte from a server that owes an answer",
    )
    .or("\"1s\""),
    Key::count("eject_after", 1, 1_000_000, "failures in a row after which a server is ejected")
        .or("3"),
    Key::quantity("probe_every", &TIME, "how often one that is ejected is probed").or("\"1s\""),
    Key::new("warm_up", Form::Table(&[WARM_UP]), "where missing items are copied from").optional(),
    Key::new("shadow", Form::Table(&[SHADOW]), "who gets copies of the requests").optional(),
];

pub const WARM_UP: &[Key] = &[
    Key::text("from", "the pool that has the items"),
    Key::quantity("longest", &TIME, "longest time to live of a copied item").optional(),
];

pub const SHADOW: &[Key] = &[
    Key::text("pool", "the pool that gets copies"),
    Key::quantity("share", &SHARE, "of how many keys").or("\"100%\""),
];

/// Keys of `[[routes]]`.
pub const ROUTE: &[Key] = &[
    Key::text("prefix", "what the keys begin with; the longest counts"),
    Key::text("pool", "their pool"),
];

/// What a file says; the address to listen on may be given elsewhere.
#[derive(Debug)]
pub struct Config {
    /// Where clients connect, if the file says so.
    pub listen: Option<SocketAddr>,
    /// All else. Its `listen` is not used.
    pub options: Options,
}

impl Config {
    /// Reads a file, and those of certificates and keys that it names.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let read = |source| ConfigError::Read { path: path.to_owned(), source };
        let text = kendall_tier::read_text(path, kendall_tier::LARGEST_FILE).map_err(read)?;
        Self::parse(&text, path)
    }

    /// As [`from_file`](Self::from_file), of its text.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            let what = error.message().trim().replace('\n', "; ");
            ConfigError::Syntax { path: path.to_owned(), line, what }
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        read(&table, folder).map_err(|error| match error {
            ConfigError::Value(problem) => {
                let line = Lines::of(text).line(&problem.key);
                ConfigError::Key { path: path.to_owned(), line, problem }
            }
            other => other,
        })
    }

    /// As [`from_file`](Self::from_file), of what a file would say.
    pub fn of(table: &Table) -> Result<Self, ConfigError> {
        read(table, Path::new(""))
    }
}

fn read(table: &Table, folder: &Path) -> Result<Config, ConfigError> {
    let mut file = Section::new("", table, &[CONFIG, SETTINGS]);
    let listen = match file.opt_text("listen")? {
        Some(text) => Some(address(&text).map_err(|what| file.problem("listen", what))?),
        None => None,
    };
    let by_workers = match file.has("mode") {
        true => file.choice("mode", &[("worker", true), ("pipelined", false)])?,
        false => file.has("workers"),
    };
    let mode = match by_workers {
        true => Mode::Workers(file.small("workers")?),
        false => Mode::Pipelined { connections: file.small("connections")? },
    };
    let client_tls = if file.has("tls") { Some(client_tls(&mut file, folder)?) } else { None };
    let main = file.opt_text("pool")?;
    let mut pools = pools(&mut file, folder)?;
    main_first(&file, &mut pools, main.as_deref())?;
    let unspecified = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = Options {
        listen: unspecified,
        listen_unix: listen_unix(&mut file)?,
        client_tls,
        threads: file.small("threads")?,
        mode,
        value_bytes: file.quantity("max_value", size)?.1,
        queue_length: whole(file.count("queue")?),
        connections: whole(file.count("max_clients")?),
        pools,
        routes: routes(&mut file)?,
    };
    file.known()?;
    Ok(Config { listen, options })
}

/// An empty path would be an address that the kernel makes up.
fn listen_unix(file: &mut Section<'_>) -> Result<Option<PathBuf>, Problem> {
    match file.opt_text("listen_unix")? {
        Some(path) if path.is_empty() => {
            Err(file.problem("listen_unix", "write the path of a socket"))
        }
        path => Ok(path.map(PathBuf::from)),
    }
}

fn whole(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Puts the pool that has the keys without a route before the others.
fn main_first(file: &Section<'_>, pools: &mut [Pool], main: Option<&str>) -> Result<(), Problem> {
    let place = match main {
        Some(name) => pools.iter().position(|pool| pool.name == name).ok_or_else(|| {
            let known: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
            let known = known.join(", ");
            file.problem("pool", format!("there is no pool `{name}` (there are: {known})"))
        })?,
        None if pools.len() == 1 => 0,
        None => {
            let what = "is missing: there are several pools; name the one that has the keys for which \
                        there is no route";
            return Err(file.problem("pool", what));
        }
    };
    pools[..=place].rotate_right(1);
    Ok(())
}

fn client_tls(file: &mut Section<'_>, folder: &Path) -> Result<ClientTls, ConfigError> {
    let mut tls = file.section("tls")?;
    let files = Tls {
        certificate: folder.join(tls.text("certificate")?),
        key: folder.join(tls.text("key")?),
        client_certificate: tls.opt_text("client_authority")?.map(|path| folder.join(path)),
    };
    tls.known()?;
    Ok(ClientTls::new(&files)?)
}

fn pools(file: &mut Section<'_>, folder: &Path) -> Result<Vec<Pool>, ConfigError> {
    let named = file.section("pools")?;
    let mut pools = Vec::new();
    for (name, value) in named.entries() {
        let path = join("pools", name);
        let Value::Table(table) = value else {
            let what = format!("`{value}` is not a table; write `[{path}]`");
            return Err(named.problem(name, what).into());
        };
        pools.push(pool(name, Section::new(&path, table, &[POOL]), folder)?);
    }
    if pools.is_empty() {
        return Err(file
            .problem("pools", "there is none; write `[pools.main]` with its servers")
            .into());
    }
    Ok(pools)
}

fn pool(name: &str, mut keys: Section<'_>, folder: &Path) -> Result<Pool, ConfigError> {
    let mut all = |key: &str| -> Result<Vec<Server>, Problem> {
        let mut servers = Vec::new();
        for text in keys.words(key)? {
            servers.push(
                server(&text).map_err(|what| keys.problem(key, format!("`{text}`: {what}")))?,
            );
        }
        Ok(servers)
    };
    let (servers, failover) = (all("servers")?, all("failover")?);
    if servers.is_empty() {
        return Err(keys.problem("servers", "is missing; write like [\"127.0.0.1:11212\"]").into());
    }
    let placements = [("replicate", Placement::Replicate), ("hash", Placement::Hash)];
    let marks = keys.opt_text("hash_tag")?.map(|text| hash_tag(&text)).transpose();
    let server_name = keys.opt_text("server_name")?;
    let authority = keys.opt_text("authority")?.map(|path| folder.join(path));
    if server_name.is_some() && authority.is_none() {
        let what = "has no effect without `authority`, with which servers are reached over TLS";
        return Err(keys.problem("server_name", what).into());
    }
    let tls = match authority {
        Some(path) => Some(ServerTls::from_files(&path, server_name.as_deref())?),
        None => None,
    };
    let pool = Pool {
        servers,
        failover,
        placement: keys.choice("placement", &placements)?,
        hash_tag: marks.map_err(|what| keys.problem("hash_tag", what))?,
        shard_multigets: keys.flag("shard_multigets")?,
        tls,
        timeout: keys.quantity("timeout", time)?.1,
        eject_after: keys.small("eject_after")?,
        probe_every: keys.quantity("probe_every", time)?.1,
        warm_up: if keys.has("warm_up") { Some(warm_up(&mut keys)?) } else { None },
        shadow: if keys.has("shadow") { Some(shadow(&mut keys)?) } else { None },
        ..Pool::new(name, Vec::new())
    };
    keys.known()?;
    Ok(pool)
}

fn warm_up(pool: &mut Section<'_>) -> Result<WarmUp, Problem> {
    let mut keys = pool.section("warm_up")?;
    let from = keys.text("from")?;
    let longest = if keys.has("longest") { Some(keys.quantity("longest", time)?.1) } else { None };
    keys.known()?;
    Ok(WarmUp { from, longest })
}

fn shadow(pool: &mut Section<'_>) -> Result<Shadow, Problem> {
    let mut keys = pool.section("shadow")?;
    let (pool, millionths) = (keys.text("pool")?, keys.quantity("share", share)?.1);
    keys.known()?;
    Ok(Shadow { pool, millionths })
}

fn routes(file: &mut Section<'_>) -> Result<Vec<Route>, Problem> {
    let mut routes = Vec::new();
    for mut route in file.sections("routes")? {
        let prefix = route.text("prefix")?.into_bytes();
        let pool = route.text("pool")?;
        route.known()?;
        routes.push(Route { prefix, pool });
    }
    Ok(routes)
}

/// A `HOST:PORT`, its name resolved.
fn address(text: &str) -> Result<SocketAddr, String> {
    kendall_tier::resolved(text)
        .map_err(|error| format!("{error}; write it as HOST:PORT, such as 127.0.0.1:11211"))
}

/// `HOST:PORT` or `unix:PATH`, with `:WEIGHT` behind it or without.
fn server(text: &str) -> Result<Server, String> {
    let (place, weight) = match text.rsplit_once(':') {
        Some((place, weight)) if has_port(place) => {
            let weight = weight.parse::<u32>().ok().filter(|weight| (1..=10_000).contains(weight));
            (place, weight.ok_or_else(|| "a weight is a number from 1 to 10000".to_owned())?)
        }
        _ => (text, 1),
    };
    let address = match place.strip_prefix("unix:") {
        Some("") => return Err("a path is missing; write it as unix:/run/memcached.sock".into()),
        Some(path) if SocketAddrUnix::new(path).is_err() => {
            return Err(format!("`{path}` is no path of a socket, which has at most 108 bytes"));
        }
        Some(path) => Address::Unix(path.into()),
        None => Address::Tcp(address(place)?),
    };
    Ok(Server { address, weight })
}

/// Whether the text before the last colon is an address by itself, so that a weight follows.
fn has_port(place: &str) -> bool {
    if let Some(path) = place.strip_prefix("unix:") {
        return !path.is_empty();
    }
    // The colons of an IPv6 address are within brackets.
    let behind_host = place.rsplit_once(']').map_or(place, |(_, rest)| rest);
    behind_host.contains(':')
}

/// Two marks, such as `{}`.
fn hash_tag(text: &str) -> Result<[u8; 2], String> {
    let marks: Option<[u8; 2]> = text.as_bytes().try_into().ok();
    marks
        .filter(|marks| marks.iter().all(u8::is_ascii_graphic))
        .ok_or_else(|| format!("`{text}` is not two marks; write them like `{{}}`"))
}

/// A time above 0.
fn time(text: &str) -> Result<Duration, String> {
    let seconds = parse_seconds(text).map_err(|error| error.to_string())?;
    if seconds.get() <= 0.0 {
        return Err(format!("`{text}` is not a time; write it like `500ms`"));
    }
    Ok(seconds.as_duration())
}

/// A size that this machine can count.
fn size(text: &str) -> Result<usize, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    usize::try_from(bytes).map_err(|_| format!("`{text}` is more than this machine can hold"))
}

/// Millionths, above 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share is from 0 to 1"
)]
fn share(text: &str) -> Result<u32, String> {
    let share = parse_share(text).map_err(|error| error.to_string())?;
    let millionths = (share * f64::from(MILLION)).round() as u32;
    if millionths == 0 || millionths > MILLION {
        return Err(format!("`{text}` is not from 0.0001% to 100%"));
    }
    Ok(millionths)
}
