//! A Prometheus server, asked over its HTTP API (v1).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine as _;
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use crate::copies::compare;
use crate::discover::{Job, LAGS, LAST_REQUESTS, matcher};
use crate::grid::Grid;
use crate::source::{Series, Source, SourceError, without_credentials};

/// How long one answer is waited for.
const TIME_OUT: Duration = Duration::from_secs(30);

/// Largest answer that is read.
const MOST_BYTES: u64 = 64 << 20;

/// How often a query is tried that failed on the way, or that the server had no time for.
const TRIES: u32 = 3;

/// How long is waited before the second try; twice as long before the third.
const PAUSE: Duration = Duration::from_millis(200);

/// Time whose samples are looked at where no target tells their distance.
const SEEN_S: u64 = 600;

/// Labels of targets by which systems are told apart that are monitored together.
const PLACES: [&str; 6] =
    ["cluster", "env", "environment", "kubernetes_namespace", "namespace", "stage"];

/// Begin of an answer that is shown where it is none of a Prometheus.
const SHOWN: usize = 60;

/// Credentials of requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Authentication {
    /// Not at all.
    #[default]
    None,
    Basic {
        user: String,
        password: String,
    },
    Bearer(String),
}

#[derive(Debug)]
pub struct Prometheus {
    url: String,
    authorization: Option<String>,
    agent: ureq::Agent,
    time_out: Duration,
}

impl Prometheus {
    /// The server at `url`, such as `http://127.0.0.1:9090`. Nothing is asked yet. A user and a password in it are sent, and shown
    /// nowhere.
    pub fn new(url: &str, authentication: &Authentication) -> Self {
        let (url, own) = apart(url);
        let authorization = match authentication {
            Authentication::None => own.map(|pair| basic(&pair)),
            Authentication::Basic { user, password } => Some(basic(&format!("{user}:{password}"))),
            Authentication::Bearer(token) => Some(format!("Bearer {token}")),
        };
        let agent = agent(ureq::tls::TlsConfig::default(), TIME_OUT);
        let url = url.trim_end_matches('/').to_owned();
        Self { url, authorization, agent, time_out: TIME_OUT }
    }

    /// Believes servers whose certificates these authorities signed (PEM), and no others.
    ///
    /// # Errors
    /// In words, where there is no certificate in it.
    pub fn with_authorities(mut self, pem: &[u8]) -> Result<Self, String> {
        let items = ureq::tls::parse_pem(pem).collect::<Result<Vec<_>, _>>();
        let items = items.map_err(|error| error.to_string())?;
        let certificates: Vec<ureq::tls::Certificate<'static>> = items
            .into_iter()
            .filter_map(|item| match item {
                ureq::tls::PemItem::Certificate(certificate) => Some(certificate),
                _ => None,
            })
            .collect();
        if certificates.is_empty() {
            return Err("there is no certificate in it".to_owned());
        }
        let roots = ureq::tls::RootCerts::new_with_certs(&certificates);
        let tls = ureq::tls::TlsConfig::builder().root_certs(roots).build();
        self.agent = agent(tls, self.time_out);
        Ok(self)
    }

    /// `GET` or, with a form, `POST` of an API path; tried again when it fails on the way.
    fn ask(&self, path: &str, form: &[(&str, String)], what: &str) -> Result<String, SourceError> {
        let mut tried = 0;
        loop {
            tried += 1;
            if tried > 1 {
                std::thread::sleep(PAUSE * (tried - 1));
            }
            match self.ask_once(path, form) {
                Ok((429 | 500..=599, text)) if tried < TRIES && !took_too_long(&text) => {}
                // What the API says, errors of a query included, is an object; what guards it may
                // answer with one too.
                Ok((status, text))
                    if text.trim_start().starts_with('{') && !matches!(status, 401 | 403) =>
                {
                    return Ok(text);
                }
                Ok((status, text)) => return Err(self.no_api(status, &text)),
                Err(ureq::Error::BodyExceedsLimit(limit)) => {
                    return Err(SourceError::Unreadable {
                        query: what.to_owned(),
                        reason: format!("it is larger than {limit} bytes; take a longer --step"),
                    });
                }
                Err(ureq::Error::Io(error)) if error.to_string().contains("UTF-8") => {
                    return Err(SourceError::Unreadable {
                        query: what.to_owned(),
                        reason: "it is no text; a proxy before the server may have compressed it, which is not asked for"
                            .to_owned(),
                    });
                }
                // A retry would wait as long again.
                Err(ureq::Error::Timeout(during))
                    if !matches!(during, ureq::Timeout::Connect | ureq::Timeout::Resolve) =>
                {
                    let (url, seconds) = (self.shown(), self.time_out.as_secs());
                    return Err(SourceError::Silent { url, seconds });
                }
                Err(_) if tried < TRIES => {}
                Err(error) => {
                    let remedy = remedy(&error.to_string());
                    let (url, source) = (self.shown(), Box::new(error));
                    return Err(SourceError::Unreachable { url, remedy, source });
                }
            }
        }
    }

    /// An answer that no Prometheus gives to a question.
    fn no_api(&self, status: u16, text: &str) -> SourceError {
        let remedy = match status {
            401 | 403 => "give credentials with --basic-file or --bearer-file".to_owned(),
            300..=399 => "it sends elsewhere: give that address itself, up to `/api`".to_owned(),
            400 if text.contains("HTTPS") => "it speaks TLS: write https://".to_owned(),
            429 | 500..=599 => format!("it was asked {TRIES} times; try again later"),
            _ => {
                "the address is that of the server itself, such as http://127.0.0.1:9090".to_owned()
            }
        };
        let title = text.split_once("<title>").and_then(|(_, rest)| rest.split('<').next());
        let text = title.unwrap_or(text).trim();
        let begin: String = without_credentials(text).chars().take(SHOWN).collect();
        SourceError::Status { url: self.shown(), status, begin, remedy }
    }

    /// Its address, for messages.
    fn shown(&self) -> String {
        without_credentials(&self.url)
    }

    fn ask_once(&self, path: &str, form: &[(&str, String)]) -> Result<(u16, String), ureq::Error> {
        let url = format!("{}{path}", self.url);
        let mut answer = if form.is_empty() {
            let mut request = self.agent.get(&url);
            if let Some(authorization) = &self.authorization {
                request = request.header("authorization", authorization);
            }
            request.call()?
        } else {
            let mut request = self.agent.post(&url);
            if let Some(authorization) = &self.authorization {
                request = request.header("authorization", authorization);
            }
            request.send_form(form.iter().map(|(key, value)| (*key, value.as_str())))?
        };
        let status = answer.status().as_u16();
        if answer.status().is_redirection() {
            let place = answer.headers().get("location").and_then(|place| place.to_str().ok());
            return Ok((status, place.unwrap_or_default().to_owned()));
        }
        Ok((status, answer.body_mut().with_config().limit(MOST_BYTES).read_to_string()?))
    }
}

fn basic(pair: &str) -> String {
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))
}

/// An address without its user and password, and these.
fn apart(url: &str) -> (String, Option<String>) {
    let parts = url.split_once("://").and_then(|(scheme, rest)| {
        let place = rest.find(['/', '?']).unwrap_or(rest.len());
        let (user, _) = rest[..place].rsplit_once('@')?;
        Some((format!("{scheme}://{}", &rest[user.len() + 1..]), user))
    });
    let decoded = |user: &str| percent_decode_str(user).decode_utf8_lossy().into_owned();
    parts.map_or_else(|| (url.to_owned(), None), |(url, user)| (url, Some(decoded(user))))
}

/// What may help where a connection fails.
fn remedy(error: &str) -> &'static str {
    if error.contains("certificate") {
        "its certificate is not signed by an authority that is known: give that with --ca-file (a certificate that is an \
         authority itself is none of a server)"
    } else if error.contains("InvalidContentType") {
        "it may speak no TLS: then write http://"
    } else {
        "is it a Prometheus, and is it running?"
    }
}

/// The HTTP client, with a time limit; error statuses are answers.
fn agent(tls: ureq::tls::TlsConfig, time_out: Duration) -> ureq::Agent {
    ureq::Agent::config_builder()
        .timeout_global(Some(time_out))
        .timeout_connect(Some(time_out / TRIES))
        .http_status_as_error(false)
        // A question that is sent elsewhere arrives there without its form, and without credentials.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .tls_config(tls)
        .build()
        .into()
}

impl Source for Prometheus {
    fn range(&mut self, query: &str, grid: &Grid) -> Result<Vec<Series>, SourceError> {
        let form = [
            ("query", query.to_owned()),
            ("start", grid.from_s.to_string()),
            ("end", grid.to_s().to_string()),
            ("step", grid.step_s.to_string()),
        ];
        parse_matrix(&self.ask("/api/v1/query_range", &form, query)?, query, grid)
    }

    fn metric_names(&mut self) -> Result<Vec<String>, SourceError> {
        self.data("/api/v1/label/__name__/values", "names of metrics")
    }
}

impl Prometheus {
    /// What it scrapes, by job, with the names of the metrics of each.
    pub fn jobs(&mut self) -> Result<Vec<Job>, SourceError> {
        // A proxy before several servers has no targets of its own.
        let targets = match self.data("/api/v1/targets?state=active", "targets") {
            Err(error @ (SourceError::Unreachable { .. } | SourceError::Silent { .. })) => {
                return Err(error);
            }
            found => found.map_or_else(|_| Vec::new(), |found: Targets| found.active_targets),
        };
        let names: Vec<String> = self.data("/api/v1/label/job/values", "names of jobs")?;
        let up = self.now("count by (job) (up)").unwrap_or_default();
        let (there, gone): (Vec<String>, Vec<String>) =
            names.into_iter().partition(|name| self.is_there(name, &up));
        // All of them are gone from a server that scrapes no more.
        let named = if there.is_empty() { gone } else { there };
        let jobs = named.iter().map(|name| self.jobs_of(name, &targets));
        let mut jobs = jobs.collect::<Result<Vec<_>, SourceError>>()?.concat();
        let now = self.now("vector(time())").and_then(|found| Some(found.first()?.1));
        if let Some(now_s) = now {
            compare(&mut jobs, self, kendall_units::whole_u64(now_s));
        }
        Ok(jobs)
    }

    /// A job; of one that passes on what another server scraped, such as a federation, the jobs of that, too.
    fn jobs_of(&self, name: &str, targets: &[Target]) -> Result<Vec<Job>, SourceError> {
        let own: Vec<&Target> = targets
            .iter()
            .filter(|one| one.labels.get("job").is_some_and(|job| job == name))
            .collect();
        let scrapes =
            own.iter().filter_map(|target| seconds_of(target.scrape_interval.as_deref()?));
        let own_scrape_s = scrapes.max();
        // One that is scraped twice is one.
        let instances: BTreeSet<String> =
            own.iter().filter_map(|target| target.labels.get("instance").cloned()).collect();
        let selector = matcher("job", name);
        let mut metrics: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let there = self.now(&format!("count by (__name__, exported_job) ({{{selector}}})"));
        for (mut labels, _) in there.unwrap_or_default() {
            if let Some(metric) = labels.remove("__name__") {
                let job = labels.remove("exported_job").unwrap_or_default();
                metrics.entry(job).or_default().insert(metric);
            }
        }
        if metrics.is_empty() {
            metrics.insert(String::new(), self.values("__name__", &selector)?);
        }
        let places = self.places(&selector);
        let job = |(exported, metrics): (String, BTreeSet<String>)| {
            let is_own = exported.is_empty();
            let metrics: Vec<String> = metrics.into_iter().collect();
            let mut job = Job {
                passed_by: (!is_own).then(|| name.to_owned()),
                name: if is_own { name.to_owned() } else { exported },
                instances: instances.iter().cloned().collect(),
                scrape_s: own_scrape_s,
                lag_s: None,
                places: if is_own { places.clone() } else { Vec::new() },
                metrics,
                beside: BTreeMap::new(),
            };
            let selector = job.selector();
            if !is_own || own.is_empty() {
                let found = self.values(job.instance_label(), &selector);
                job.instances = found.unwrap_or_default().into_iter().collect();
            }
            let down = self.now(&format!("up{{{selector}}} == 0")).unwrap_or_default();
            let is_down = |instance: &String| {
                down.iter().any(|(labels, _)| labels.get(job.instance_label()) == Some(instance))
            };
            let up = job.instances.iter().filter(|instance| !is_down(instance)).cloned().collect();
            job.instances = up;
            let any = job.metrics.iter().find(|name| *name == "up").or(job.metrics.first());
            // What another server scraped has the distance of its scrapes.
            let own_s = job.scrape_s.filter(|_| is_own);
            let seen_s = || self.seen_scrape_s(&selector, any?);
            job.scrape_s = own_s.or_else(seen_s).or(job.scrape_s);
            job.lag_s = job.lags().then(|| self.lag_s(&selector)).flatten();
            job
        };
        Ok(metrics.into_iter().map(job).collect())
    }

    /// Values of a label in the series of a selector.
    fn values(&self, label: &str, selector: &str) -> Result<BTreeSet<String>, SourceError> {
        let matcher: String =
            format!("{{{selector}}}").bytes().map(|byte| format!("%{byte:02X}")).collect();
        self.data(&format!("/api/v1/label/{label}/values?match[]={matcher}"), "values of a label")
    }

    /// Labels by which the targets of a job are those of several systems, perhaps, with their values.
    fn places(&self, selector: &str) -> Vec<(String, Vec<String>)> {
        let query = format!("count by ({}) (up{{{selector}}})", PLACES.join(", "));
        let found = self.now(&query).unwrap_or_default();
        let of = |label: &&str| {
            let values = found.iter().filter_map(|(labels, _)| labels.get(*label).cloned());
            ((*label).to_owned(), values.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>())
        };
        PLACES.iter().map(of).filter(|(_, values)| values.len() > 1).collect()
    }

    /// Whether a job is there now: names of labels are those of all that was ever kept.
    fn is_there(&self, job: &str, up: &[(BTreeMap<String, String>, f64)]) -> bool {
        let own =
            |labels: &BTreeMap<String, String>| labels.get("job").is_some_and(|own| own == job);
        up.iter().any(|(labels, _)| own(labels))
            || self.now(&format!("count({{job={job:?}}})")).is_none_or(|found| !found.is_empty())
    }

    /// Over how long a mean of the last requests of a backend of HAProxy is one, weighted by their requests.
    fn lag_s(&self, selector: &str) -> Option<u64> {
        let rates = format!("rate({LAGS}{{{selector}}}[{SEEN_S}s])");
        let query = format!("{LAST_REQUESTS} * count({rates} > 0) / sum({rates})");
        let (_, seconds) = self.now(&query)?.into_iter().next()?;
        seconds.is_finite().then(|| kendall_units::whole_u64(seconds.ceil()))
    }

    /// What a query gives now; `None` where it is not answered.
    fn now(&self, query: &str) -> Option<Vec<(BTreeMap<String, String>, f64)>> {
        #[derive(Deserialize)]
        struct Vector {
            result: Vec<Sample>,
        }
        #[derive(Deserialize)]
        struct Sample {
            metric: BTreeMap<String, String>,
            value: (f64, String),
        }
        let text = self.ask("/api/v1/query", &[("query", query.to_owned())], query).ok()?;
        let answer: Envelope<Vector> = serde_json::from_str(&text).ok()?;
        let of = |sample: Sample| Some((sample.metric, sample.value.1.parse().ok()?));
        answer.data?.result.into_iter().map(of).collect()
    }

    /// Distance of the scrapes of a job, by when the samples of one of its series were taken: others may be younger, and what
    /// was missed is a longer gap.
    fn seen_scrape_s(&self, selector: &str, metric: &str) -> Option<u64> {
        let most = format!("topk(1, count_over_time({metric}{{{selector}}}[{SEEN_S}s]))");
        let (labels, _) = self.now(&most)?.into_iter().next()?;
        let labels = labels.iter().filter(|(label, _)| *label != "__name__");
        let one: Vec<String> = labels.map(|(label, value)| matcher(label, value)).collect();
        let query = format!("{metric}{{{}}}[{SEEN_S}s]", one.join(","));
        let text = self.ask("/api/v1/query", &[("query", query.clone())], &query).ok()?;
        let answer: Envelope<Matrix> = serde_json::from_str(&text).ok()?;
        let times: Vec<f64> =
            answer.data?.result.into_iter().next()?.values.into_iter().map(|(at, _)| at).collect();
        let mut gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        gaps.sort_by(f64::total_cmp);
        let middle = gaps.get(gaps.len().checked_sub(1)? / 2)?;
        Some(kendall_units::whole_u64(middle.round()).max(1))
    }

    /// The data of an answer to a `GET`.
    fn data<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        what: &str,
    ) -> Result<T, SourceError> {
        let text = self.ask(path, &[], what)?;
        let unreadable =
            |reason: String| SourceError::Unreadable { query: what.to_owned(), reason };
        let answer: Envelope<T> =
            serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
        answer.data.ok_or_else(|| unreadable(answer.error.unwrap_or_default()))
    }
}

/// Whole seconds of a duration as a Prometheus writes it, such as `1m30s`; a second at least.
fn seconds_of(text: &str) -> Option<u64> {
    let mut seconds = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| c.is_ascii_alphabetic())?);
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let unit = match &after[..end] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * unit;
        rest = &after[end..];
    }
    (seconds > 0.0).then(|| kendall_units::whole_u64(seconds.ceil()))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Targets {
    active_targets: Vec<Target>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Target {
    labels: BTreeMap<String, String>,
    scrape_interval: Option<String>,
}

#[derive(Deserialize)]
struct Envelope<T> {
    status: String,
    data: Option<T>,
    error: Option<String>,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Matrix {
    result_type: String,
    result: Vec<MatrixSeries>,
}

#[derive(Deserialize)]
struct MatrixSeries {
    metric: BTreeMap<String, String>,
    #[serde(default)]
    values: Vec<(f64, String)>,
    /// Native histograms in place of numbers.
    #[serde(default)]
    histograms: Vec<serde::de::IgnoredAny>,
}

/// Warnings that say something of the query and nothing of the data begin so.
const INFORMATION: &str = "PromQL info";

/// Whether a query was given up for the time that it took: asked again, it takes as long again.
pub(crate) fn took_too_long(text: &str) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Failed {
        error_type: String,
    }
    let failed: Result<Failed, _> = serde_json::from_str(text);
    failed.is_ok_and(|failed| matches!(failed.error_type.as_str(), "timeout" | "canceled"))
}

/// Reads the answer to a range query, as the server sent it or a recording kept it.
pub(crate) fn parse_matrix(
    text: &str,
    query: &str,
    grid: &Grid,
) -> Result<Vec<Series>, SourceError> {
    let unreadable = |reason: String| SourceError::Unreadable { query: query.to_owned(), reason };
    let answer: Envelope<Matrix> = serde_json::from_str(text).map_err(|error| {
        let begin: String = text.chars().take(80).collect();
        unreadable(format!("{error}; it begins with `{begin}`"))
    })?;
    if answer.status != "success" {
        let reason = answer.error.unwrap_or_else(|| "no reason given".to_owned());
        return Err(SourceError::Refused { query: query.to_owned(), reason });
    }
    // A part of the servers behind it did not answer, or samples were left out: a sum over the rest looks whole.
    if let Some(warning) = answer.warnings.iter().find(|text| !text.starts_with(INFORMATION)) {
        let reason = format!("a part of the data may be missing; the server warns: {warning}");
        return Err(SourceError::Refused { query: query.to_owned(), reason });
    }
    let matrix = answer.data.ok_or_else(|| unreadable("it has no data".to_owned()))?;
    if matrix.result_type != "matrix" {
        return Err(unreadable(format!("it is a {}, not a matrix", matrix.result_type)));
    }
    matrix
        .result
        .into_iter()
        .map(|series| {
            if !series.histograms.is_empty() {
                return Err(unreadable(
                    "it has native histograms, not numbers; ask for `histogram_count(…)`, `histogram_sum(…)` or \
                     `histogram_avg(…)` of it"
                        .to_owned(),
                ));
            }
            let mut values = vec![f64::NAN; grid.len()];
            for (moment, value) in series.values {
                let number = match value.as_str() {
                    "+Inf" => f64::INFINITY,
                    "-Inf" => f64::NEG_INFINITY,
                    "NaN" => f64::NAN,
                    text => {
                        text.parse().map_err(|_| unreadable(format!("`{text}` is not a number")))?
                    }
                };
                if let Some(index) = grid.index_of(moment) {
                    values[index] = number;
                }
            }
            Ok(Series { labels: series.metric, values })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_is_read_onto_the_grid_with_its_gaps() {
        let grid = Grid::new(100, 120, 5).unwrap();
        let text = r#"{"status":"success","data":{"resultType":"matrix","result":[
            {"metric":{"le":"0.1"},"values":[[100,"1.5"],[110.0,"NaN"],[115,"+Inf"],[400,"7"]]}]}}"#;
        let series = parse_matrix(text, "q", &grid).unwrap();
        assert_eq!(series[0].labels["le"], "0.1");
        assert_eq!(series[0].values[0].to_bits(), 1.5_f64.to_bits());
        assert!(series[0].values[1].is_nan() && series[0].values[2].is_nan());
        assert!(series[0].values[3].is_infinite() && series[0].values.len() == 5);
    }

    /// Sums over a part of the servers look like whole ones; a remark on the query is none on the data.
    #[test]
    fn an_answer_that_is_not_whole_is_refused() {
        let grid = Grid::new(100, 120, 5).unwrap();
        let with = |warning: &str| {
            let text = format!(
                r#"{{"status":"success","warnings":["{warning}"],"data":{{"resultType":"matrix","result":[]}}}}"#
            );
            parse_matrix(&text, "q", &grid).map_err(|error| error.to_string())
        };
        let said = with("receive: store is down").unwrap_err();
        assert!(said.contains("a part of the data may be missing"), "{said}");
        assert!(said.contains("store is down"), "{said}");
        assert!(with("PromQL info: metric might not be a counter").is_ok());
    }

    /// One that accepts a connection and sends no answer, or never ends it, is asked once.
    #[test]
    fn a_server_that_ends_no_answer_is_told_from_one_that_is_not_there() {
        use std::io::Write as _;
        for begin in ["", "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let mut server = Prometheus::new(
                &format!("http://{}", listener.local_addr().unwrap()),
                &Authentication::None,
            );
            server.time_out = Duration::from_secs(3);
            server.agent = agent(ureq::tls::TlsConfig::default(), server.time_out);
            let held = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(begin.as_bytes()).unwrap();
                (stream, listener)
            });
            let said = server.metric_names().unwrap_err();
            assert!(matches!(said, SourceError::Silent { .. }), "{begin}: {said:?}");
            assert!(said.to_string().contains("is connected, but there was no answer"), "{said}");
            let (_stream, listener) = held.join().unwrap();
            listener.set_nonblocking(true).unwrap();
            assert!(listener.accept().is_err(), "{begin}: it was asked again");
        }
    }

    #[test]
    fn an_address_is_parted_from_its_user_and_password() {
        let of = |url: &str| apart(url);
        assert_eq!(
            of("http://me:p%40ss@p:9090/x@y"),
            ("http://p:9090/x@y".to_owned(), Some("me:p@ss".to_owned()))
        );
        for plain in ["http://p:9090/a@b", "http://p?c=d@e", "p:9090"] {
            assert_eq!(of(plain), (plain.to_owned(), None));
        }
        let with = |url: &str, own: &Authentication| Prometheus::new(url, own).authorization;
        let secret = "http://me:secret@p";
        assert_eq!(with(secret, &Authentication::None).unwrap(), "Basic bWU6c2VjcmV0");
        assert_eq!(with(secret, &Authentication::Bearer("a".to_owned())).unwrap(), "Bearer a");
    }

    #[test]
    fn a_certificate_that_is_not_trusted_has_a_way_out() {
        assert!(remedy("io: invalid peer certificate: UnknownIssuer").contains("--ca-file"));
        assert!(
            remedy("io: received corrupt message of type InvalidContentType").contains("http://")
        );
        assert!(remedy("io: Connection refused").contains("is it running?"));
    }

    #[test]
    fn native_histograms_are_named() {
        let grid = Grid::new(100, 120, 5).unwrap();
        let text = r#"{"status":"success","data":{"resultType":"matrix","result":[
            {"metric":{},"histograms":[[100,{"count":"5","sum":"1","buckets":[[0,"1","2","5"]]}]]}]}}"#;
        let said = parse_matrix(text, "q", &grid).unwrap_err().to_string();
        assert!(said.contains("native histograms") && said.contains("histogram_count"), "{said}");
    }

    #[test]
    fn a_refusal_keeps_the_servers_words_and_noise_is_unreadable() {
        let grid = Grid::new(100, 120, 5).unwrap();
        let text = r#"{"status":"error","errorType":"bad_data","error":"parse error at char 3"}"#;
        let error = parse_matrix(text, "su(x)", &grid).unwrap_err();
        assert!(error.to_string().contains("`su(x)` was refused: parse error at char 3"));
        for noise in [
            "<html>404</html>",
            "{}",
            r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#,
        ] {
            assert!(parse_matrix(noise, "q", &grid).is_err(), "{noise}");
        }
    }
}
