//! `kendall load http`.

use std::net::IpAddr;
use std::path::PathBuf;

use kendall_loadgen::http::{Http, HttpPlan, Url, Values};
use kendall_loadgen::load;
use kendall_loadgen::random::{Purpose, stream};
use kendall_loadgen::replay::Replay;
use kendall_loadgen::sequence::{self, SequencePlan};
use kendall_loadgen::tls::Secure;
use kendall_loadgen::web::{self, WebPlan};
use kendall_protocols::load_result::LoadResult;

use super::common::{Common, Family, load_error, resolve_as, varied};
use super::secure::Trust;
use crate::exit::{Exit, refused, stop_at_a_signal};

/// Loads an HTTP service
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  kendall load http http://127.0.0.1:8080/ --clients 64 --duration 10s\n  \
                  kendall load http http://127.0.0.1:8080/ -c 64 -n 10000 --format json\n  \
                  kendall load http 'http://127.0.0.1:8080/compute?size=20&exponent={difficulty}' \
                  --rate 250/s --arrivals poisson --vary difficulty=exponential:30\n  \
                  kendall load http http://127.0.0.1:8080/ --sequence shop.toml --rate 20/s"
)]
pub(crate) struct LoadHttp {
    /// The URL; may contain placeholders such as `{difficulty}`. Several with the same path are
    /// instances of one service: connections take them in turn
    #[arg(value_name = "URL", required = true)]
    urls: Vec<String>,

    /// Method [default: GET, or POST with a body]
    #[arg(long, short = 'm', short_alias = 'X', value_name = "METHOD")]
    method: Option<String>,

    /// A header, such as `Accept: application/json`; may contain placeholders; may be repeated
    #[arg(long, short = 'H', value_name = "NAME: VALUE")]
    header: Vec<String>,

    #[arg(long, short = 'd', value_name = "TEXT", conflicts_with = "body_file")]
    body: Option<String>,

    /// File with the body of every request; may contain placeholders
    #[arg(long, value_name = "PATH")]
    body_file: Option<PathBuf>,

    /// Value of `{NAME}`, drawn anew for each request: a whole number (`20`, `exponential:20`,
    /// `normal:20,5`, `uniform:1..40`, `zipf:1000,0.99`; `exponential:20 at most 90` sends 90 for
    /// every draw above 90) or a line of a file (`file:PATH`); may be repeated
    #[arg(long, value_name = "NAME=VALUES", value_parser = varied)]
    vary: Vec<(String, Values)>,

    /// A file of sequences (TOML): requests that follow each other, with values that later ones take from earlier
    /// replies; see the page on loads. A request of the load is then a run of a sequence, and the path of the
    /// URL is `/`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["replay", "method", "body", "body_file"])]
    sequence: Option<PathBuf>,

    /// Sends the GETs of an access log (common or combined format) at the log's own times, to the
    /// host of the URL
    #[arg(
        long,
        value_name = "PATH",
        conflicts_with_all = ["rate", "arrivals", "stages", "think_time", "vary", "method", "body", "body_file"]
    )]
    replay: Option<PathBuf>,

    /// `--replay` at so many times the log's speed
    #[arg(long, value_name = "FACTOR", requires = "replay", default_value_t = 1.0)]
    speed: f64,

    /// A new connection for every request
    #[arg(long)]
    no_keep_alive: bool,

    /// HTTP/2; without TLS by prior knowledge
    #[arg(long)]
    http2: bool,

    /// With `--http2`: connections that the clients share [default: one per client]
    #[arg(
        long,
        value_name = "N",
        requires = "http2",
        conflicts_with = "no_keep_alive",
        value_parser = clap::value_parser!(u32).range(1..=100_000)
    )]
    connections: Option<u32>,

    /// Uses an IPv4 address of the host
    #[arg(long, short = '4', conflicts_with = "ipv6")]
    ipv4: bool,

    /// Uses an IPv6 address of the host
    #[arg(long, short = '6')]
    ipv6: bool,

    #[command(flatten)]
    trust: Trust,

    #[command(flatten)]
    common: Common,
}

impl LoadHttp {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let (url, targets) = self.targets()?;
        let mut content = self.content(&url)?;
        let sequences = self.sequences(&url, &mut content)?;
        let replay = self.replay(&url)?;
        let left_out = replay.as_ref().and_then(Replay::remark);
        let print = |mut result: LoadResult| {
            result.caveats.extend(left_out);
            self.common.print(&result)
        };
        if let Some(replay) = &replay {
            content.path = "{request}".to_owned();
            content.placeholders =
                vec![("request".to_owned(), Values::in_turn(replay.paths.clone()))];
        }
        let template = content.template().map_err(refused)?;
        let family = match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        };
        let mut plan = self.common.plan(
            resolve_as(&targets, "http://127.0.0.1:8080/", family)?,
            self.connections.unwrap_or(self.common.clients()).into(),
        )?;
        if let Some(replay) = replay {
            plan = self.common.replaying(plan, replay.moments_ns);
        }
        let secure = self.secure(&url)?;
        let stop = stop_at_a_signal()?;
        if url.tls || self.http2 || sequences.is_some() {
            let web = WebPlan {
                content,
                tls: secure,
                http2: self.http2,
                connections: self.connections.map(|connections| connections as usize),
            };
            let mut progress = self.common.progress()?;
            let result = match sequences {
                Some(sequences) => sequence::run(&plan, &web, sequences, &stop, &mut progress),
                None => web::run(&plan, &web, &template, &stop, &mut progress),
            };
            return print(result.map_err(load_error)?);
        }
        let driver =
            |thread| Http::new(&content, &template, stream(plan.seed, Purpose::Requests, thread));
        let result = load::run("http", &plan, &driver, &stop, &mut self.common.progress()?)
            .map_err(load_error)?;
        print(result)
    }

    fn secure(&self, url: &Url) -> anyhow::Result<Option<Secure>> {
        if !url.tls {
            return self.trust.refuse_without("a URL of https").map(|()| None);
        }
        let (name, tls) = self.trust.of(&url.host);
        tls.of(&name, &[web::alpn(self.http2)]).map(Some).map_err(refused)
    }

    /// The sequences, which have their own paths and take over what varies.
    fn sequences(&self, url: &Url, content: &mut HttpPlan) -> anyhow::Result<Option<SequencePlan>> {
        let Some(file) = &self.sequence else { return Ok(None) };
        self.without_path(url, "--sequence", "file")?;
        let varied = std::mem::take(&mut content.placeholders);
        SequencePlan::read(file, varied).map(Some).map_err(refused)
    }

    /// Refuses a path where a file has them.
    fn without_path(&self, url: &Url, option: &str, file: &str) -> anyhow::Result<()> {
        if url.path == "/" {
            return Ok(());
        }
        let url = &self.urls[0];
        Err(refused(format!(
            "{url}: with {option} the {file} has the paths; give the URL without one"
        )))
    }

    fn replay(&self, url: &Url) -> anyhow::Result<Option<Replay>> {
        let Some(log) = &self.replay else { return Ok(None) };
        if !(self.speed > 0.0 && self.speed.is_finite()) {
            return Err(refused(format!("--speed {} is not a number above 0", self.speed)));
        }
        self.without_path(url, "--replay", "log")?;
        Replay::read(log, self.speed).map(Some).map_err(refused)
    }

    /// The first URL, by which requests are made, and where each of them goes.
    fn targets(&self) -> anyhow::Result<(Url, Vec<String>)> {
        let urls: Result<Vec<Url>, _> = self.urls.iter().map(|text| Url::parse(text)).collect();
        let urls = urls.map_err(refused)?;
        let [first, others @ ..] = &urls[..] else { return Err(refused("no URL")) };
        for (url, text) in others.iter().zip(&self.urls[1..]) {
            let why = if (url.tls, &url.path) != (first.tls, &first.path) {
                "has another scheme or path"
            } else if url.host != first.host && (url.tls || !self.may_differ(url, first)) {
                "has another host"
            } else {
                continue;
            };
            let text = format!(
                "`{text}` {why} than `{}`: several URLs are one service, for which the header Host, and with https \
                 the certificate, are those of the first; with http, name it by --header 'Host: …'",
                self.urls[0]
            );
            return Err(refused(text));
        }
        let target = |url: &Url| {
            let ipv6 = url.host.contains(':');
            let host = if ipv6 { format!("[{}]", url.host) } else { url.host.clone() };
            format!("{host}:{}", url.port)
        };
        Ok((first.clone(), urls.iter().map(target).collect()))
    }

    /// Whether one header `Host` will do for two hosts: addresses, of which servers make no difference, and hosts
    /// that are sent one that the user named.
    fn may_differ(&self, one: &Url, other: &Url) -> bool {
        let is_address = |url: &Url| url.host.parse::<IpAddr>().is_ok();
        let is_host = |header: &String| {
            header.split_once(':').is_some_and(|(name, _)| name.trim().eq_ignore_ascii_case("host"))
        };
        is_address(one) && is_address(other) || self.header.iter().any(is_host)
    }

    fn content(&self, url: &Url) -> anyhow::Result<HttpPlan> {
        if let Some(path) = self.body.as_deref().and_then(|body| body.strip_prefix('@')) {
            return Err(refused(format!(
                "--body is sent as it is; to send the contents of a file, use --body-file {path}"
            )));
        }
        let body = match (&self.body, &self.body_file) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(path)) => kendall_tier::read_file(path, kendall_tier::LARGEST_FILE)
                .map_err(|error| refused(format!("--body-file {}: {error}", path.display())))?,
            (None, None) => Vec::new(),
        };
        let headers: Result<Vec<_>, _> =
            self.header.iter().map(|text| HttpPlan::parse_header(text)).collect();
        Ok(HttpPlan {
            method: self
                .method
                .clone()
                .unwrap_or_else(|| if body.is_empty() { "GET" } else { "POST" }.to_owned()),
            path: url.path.clone(),
            authority: url.authority.clone(),
            headers: headers.map_err(refused)?,
            body,
            placeholders: self.vary.clone(),
            keep_alive: !self.no_keep_alive,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        load: LoadHttp,
    }

    fn targets(arguments: &[&str]) -> Result<Vec<String>, String> {
        let line = Line::try_parse_from([&["http"], arguments].concat()).unwrap();
        line.load.targets().map(|(_, targets)| targets).map_err(|error| error.to_string())
    }

    /// Requests are made of the first URL: a server that goes by names would answer them as another one.
    #[test]
    fn hosts_of_several_urls_are_one_or_addresses_or_told() {
        let named = ["http://a.example/", "http://b.example/"];
        let said = targets(&named).unwrap_err();
        assert!(
            said.contains("`http://b.example/` has another host than `http://a.example/`"),
            "{said}"
        );
        assert!(said.contains("--header 'Host"), "{said}");
        let told = [&named[..], &["-H", "Host: shop.example"]].concat();
        assert_eq!(targets(&told).unwrap(), ["a.example:80", "b.example:80"]);
        assert!(targets(&["http://10.0.0.1/", "http://10.0.0.2/"]).is_ok());
        assert!(targets(&["http://a.example:1/", "http://a.example:2/"]).is_ok());
        let encrypted = ["https://10.0.0.1/", "https://10.0.0.2/", "-H", "Host: shop.example"];
        assert!(targets(&encrypted).is_err(), "the certificate is of one");
    }
}
