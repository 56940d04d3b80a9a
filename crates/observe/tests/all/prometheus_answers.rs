//! Answers that a Prometheus, or what guards it, gives instead of series.

#![allow(clippy::unwrap_used, reason = "a failure to set up a test is a failure of the test")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;

use kendall_observe::{
    Authentication, Grid, Prometheus, Source as _, SourceError, System, analyze, discover, fetch,
    report,
};

/// A server that gives these answers, each to one connection, and what comes of asking it.
fn asked(
    answers: &'static [(&'static str, &'static str)],
) -> (Result<Vec<String>, SourceError>, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let mut given = 0;
        for (status, body) in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = BufReader::new(stream.try_clone().unwrap()).lines();
            // The one that says to stop.
            if head.next().is_none_or(|line| line.unwrap().starts_with("STOP")) {
                break;
            }
            while head.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            let length = body.len();
            let close = "content-type: application/json\r\nconnection: close\r\ncontent-length:";
            write!(stream, "HTTP/1.1 {status}\r\n{close} {length}\r\n\r\n{body}").unwrap();
            given += 1;
        }
        given
    });
    let names = Prometheus::new(&url, &Authentication::None).metric_names();
    if let Ok(mut stream) = std::net::TcpStream::connect(url.trim_start_matches("http://")) {
        // After all answers the server no longer reads it.
        drop(stream.write_all(b"STOP\r\n"));
    }
    (names, server.join().unwrap())
}

/// A server that answers each request by its first line and its form, as long as the test runs.
fn answering(answer: fn(&str) -> Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut asked, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if asked.is_empty() {
                    asked.push_str(&line);
                }
                let line = line.trim().to_ascii_lowercase();
                if let Some(told) = line.strip_prefix("content-length:") {
                    length = told.trim().parse().unwrap();
                }
                if line.is_empty() {
                    break;
                }
            }
            let mut form = vec![0; length];
            reader.read_exact(&mut form).unwrap();
            asked.push_str(std::str::from_utf8(&form).unwrap());
            let body = answer(&asked);
            let head = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
        }
    });
    url
}

/// What answers for several Prometheus has no targets, and neither has a federation that keeps the labels of others: their
/// instances and the distance of their scrapes are in their series, of which the longest began two minutes ago.
#[test]
fn a_server_without_targets_tells_its_scrapes_by_their_moments() {
    let url = answering(|asked| {
        let data = if asked.contains("/targets") {
            r#"{"activeTargets":[],"droppedTargets":[]}"#
        } else if asked.contains("/label/job/") {
            r#"["web","node","pushed","of-last-year"]"#
        } else if asked.contains("/label/instance/") {
            r#"["10.0.0.1:80"]"#
        } else if asked.contains("topk") {
            r#"{"resultType":"vector","result":[{"metric":{"job":"x","instance":"the longest"},"value":[1,"5"]}]}"#
        } else if asked.contains("600s") && asked.contains("the+longest") {
            // A scrape failed.
            r#"{"resultType":"matrix","result":[{"metric":{},"values":[[100.3,"1"],[105.3,"1"],[110.31,"1"],[120.3,"1"],[125.3,"1"]]}]}"#
        } else if asked.contains("3D%3D+0") || asked.contains("==+0") {
            // Its host has moved: what was scraped there is down.
            r#"{"resultType":"vector","result":[{"metric":{"job":"node","instance":"10.0.0.1:80"},"value":[1,"0"]}]}"#
        } else if asked.contains("query=count+by") || asked.contains("query=count%20by") {
            r#"{"resultType":"vector","result":[{"metric":{"job":"web"},"value":[1,"1"]},{"metric":{"job":"node"},"value":[1,"1"]}]}"#
        } else if asked.contains("last-year") && asked.contains("/query") {
            r#"{"resultType":"vector","result":[]}"#
        } else if asked.contains("/query") {
            r#"{"resultType":"vector","result":[{"metric":{},"value":[1,"7"]}]}"#
        } else if asked.contains("%6F%64%65") {
            r#"["node_cpu_seconds_total"]"#
        } else {
            r#"["http_request_duration_seconds_count"]"#
        };
        format!(r#"{{"status":"success","data":{data}}}"#).into_bytes()
    });
    let jobs = Prometheus::new(&url, &Authentication::None).jobs().unwrap();
    let text = discover::system_file(&url, &jobs, Some("web")).unwrap();
    let system = System::parse(&text).unwrap();
    assert_eq!((system.scrape_s, text.contains("a guess: the server")), (5, false), "{text}");
    let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["web", "node", "pushed"]);
    // A host whose target is down is none of a tier that is up.
    assert!(jobs.iter().all(|job| job.instances.is_empty()), "{jobs:?}");
    let text = discover::system_file(&url, &jobs[..2], None).unwrap();
    assert!(!text.contains("the processors of its host"), "{text}");
}

fn vector(result: &str) -> String {
    format!(r#"{{"resultType":"vector","result":[{result}]}}"#)
}

fn sample(labels: &str) -> String {
    format!(r#"{{"metric":{{{labels}}},"value":[1,"1"]}}"#)
}

/// A federation: jobs of the other server are told apart, and so are the namespaces of a job.
#[test]
fn what_a_federation_passes_on_is_told_apart() {
    let url = answering(|asked| {
        let data = if asked.contains("/targets") {
            r#"{"activeTargets":[{"labels":{"job":"federate","instance":"p:9090"},"scrapeInterval":"30s"}]}"#.to_owned()
        } else if asked.contains("/label/job/") {
            r#"["federate"]"#.to_owned()
        } else if asked.contains("/label/exported_instance/") {
            r#"["10.0.0.1:80","10.0.0.2:80"]"#.to_owned()
        } else if asked.contains("__name__") && asked.contains("exported_job") {
            let web = r#""__name__":"http_request_duration_seconds_count","exported_job":"web""#;
            let db = r#""__name__":"pg_stat_database_xact_commit","exported_job":"db""#;
            let own = r#""__name__":"prometheus_build_info","exported_job":"prometheus""#;
            vector(&[web, db, own, r#""__name__":"up""#].map(sample).join(","))
        } else if asked.contains("cluster") {
            vector(&[r#""namespace":"a""#, r#""namespace":"b""#].map(sample).join(","))
        } else {
            vector(&sample(r#""job":"federate""#))
        };
        format!(r#"{{"status":"success","data":{data}}}"#).into_bytes()
    });
    let jobs = Prometheus::new(&url, &Authentication::None).jobs().unwrap();
    let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["federate", "db", "prometheus", "web"]);
    assert_eq!(jobs[0].places, [("namespace".to_owned(), vec!["a".to_owned(), "b".to_owned()])]);
    let text = discover::system_file(&url, &jobs, None).unwrap();
    let system = System::parse(&text).unwrap();
    let names: Vec<&str> = system.tiers.iter().map(|tier| tier.name.as_str()).collect();
    assert_eq!((names, system.scrape_s), (vec!["web", "db"], 30), "{text}");
    assert!(text.contains(r#"job="federate",exported_job="web""#), "{text}");
    assert!(text.contains("the sum of 2 instances"), "{text}");
}

/// A range of an application whose load has ten levels in an hour, and that works for 20 ms on a request.
fn of_a_range(asked: &str) -> String {
    let value = |key: &str| -> Option<u64> {
        let found = asked.split(['&', '\n']).find_map(|pair| pair.strip_prefix(key))?;
        found.strip_prefix('=')?.parse().ok()
    };
    let [from, to, step] = ["start", "end", "step"].map(|key| value(key).unwrap_or(1));
    let at = (from..=to).step_by(usize::try_from(step).unwrap());
    let of = |at: u64| {
        let load =
            [20, 35, 50, 28, 44, 24, 39, 31, 48, 27][usize::try_from(at / 360 % 10).unwrap()];
        let load = f64::from(load);
        // Its own time is not counted to the microsecond.
        let noise = 1.0 + f64::from(u32::try_from(at * 7_919 % 100).unwrap()) / 1e4;
        if asked.contains("process_cpu") {
            load * 0.02 * noise
        } else if asked.contains("_sum") {
            0.025
        } else {
            load
        }
    };
    let values: Vec<String> = at.map(|at| format!("[{at},\"{}\"]", of(at))).collect();
    let one = format!(r#"{{"metric":{{}},"values":[{}]}}"#, values.join(","));
    let is_split = ["+by+", "%20by%20", "query=up", "process_start"];
    let series = if is_split.iter().any(|sign| asked.contains(sign)) { "" } else { &one };
    format!(r#"{{"resultType":"matrix","result":[{series}]}}"#)
}

/// From an address to an answer without an editor: the one application has no metric of its processors, is scraped by two jobs,
/// and stands beside one that no preset knows.
#[test]
fn the_file_that_is_written_is_taken_as_it_is() {
    let url = answering(|asked| {
        let data = if asked.contains("/query_range") {
            of_a_range(asked)
        } else if asked.contains("/targets") {
            let target = |job: &str, port: u16| {
                format!(
                    r#"{{"labels":{{"job":"{job}","instance":"10.0.0.1:{port}"}},"scrapeInterval":"5s"}}"#
                )
            };
            let all = [("again", 80), ("api", 80), ("batch", 81)];
            let all = all.map(|(job, port)| target(job, port)).join(",");
            format!(r#"{{"activeTargets":[{all}]}}"#)
        } else if asked.contains("/label/job/") {
            r#"["again","api","batch"]"#.to_owned()
        } else if asked.contains("__name__") && asked.contains("batch") {
            vector(&sample(r#""__name__":"shop_requests_total""#))
        } else if asked.contains("__name__") {
            let names = ["http_request_duration_seconds", "process_cpu_seconds_total"];
            let all =
                [names[0].to_owned() + "_count", names[0].to_owned() + "_sum", names[1].to_owned()];
            vector(&all.map(|name| sample(&format!(r#""__name__":"{name}""#))).join(","))
        } else if asked.contains("+by+%28job%29") || asked.contains("by%20(job)") {
            vector(
                &["again", "api", "batch"]
                    .map(|job| sample(&format!(r#""job":"{job}""#)))
                    .join(","),
            )
        } else if asked.contains("/label/__name__/") {
            r#"["http_request_duration_seconds_count","process_cpu_seconds_total"]"#.to_owned()
        } else {
            vector("")
        };
        format!(r#"{{"status":"success","data":{data}}}"#).into_bytes()
    });
    let mut server = Prometheus::new(&url, &Authentication::None);
    let jobs = server.jobs().unwrap();
    let text = discover::system_file(&url, &jobs, None).unwrap();
    for said in
        ["it is `api` again (both scrape one address): again", "batch (shop_requests_total)"]
    {
        assert!(text.contains(said), "{text}");
    }
    let system = System::parse(&text).unwrap();
    assert_eq!((system.tiers.len(), system.step_s), (1, 5), "{text}");
    let grid = Grid::new(1_000_000_800, 1_000_004_400, 5).unwrap();
    let observed = fetch(&system, &mut server, grid).unwrap();
    let analysis = analyze(&system, &observed).unwrap();
    let said = report::report(&system, &observed, &analysis, &[]).summary;
    let asks = "Cannot tell what saturates first: how many cores has `api`? Write `servers = N` in the file.";
    assert_eq!(said[0], asks, "{said:?}");
    assert!(said[1].starts_with("Each core of `api` carries 49.7"), "{said:?}");
}

/// A proxy that compresses answers unasked is there.
#[test]
fn an_answer_that_is_no_text_is_not_a_missing_server() {
    let url = answering(|_| vec![0x1f, 0x8b, 8, 0, 0, 0xff]);
    let said = Prometheus::new(&url, &Authentication::None).metric_names().unwrap_err().to_string();
    assert!(said.contains("compressed") && !said.contains("reached"), "{said}");
}

/// The first query that has no answer is the last: whether an application is scraped twice is asked before all others.
#[test]
fn a_server_that_refuses_to_tell_what_is_twice_is_told_of() {
    struct Mute(usize);
    impl kendall_observe::Source for Mute {
        fn range(
            &mut self,
            query: &str,
            _: &Grid,
        ) -> Result<Vec<kendall_observe::Series>, SourceError> {
            self.0 += 1;
            if query == "x" || query.contains("(x") {
                return Err(SourceError::Silent { url: "http://p".to_owned(), seconds: 30 });
            }
            Ok(Vec::new())
        }
    }
    let text = "name = 'x'\nentry = 'a'\n[tiers.a]\nservers = 1\nqueries.throughput = 'sum(rate(x[{window}]))'";
    let mut mute = Mute(0);
    let grid = Grid::new(0, 3_600, 15).unwrap();
    let said = fetch(&System::parse(text).unwrap(), &mut mute, grid).unwrap_err().to_string();
    // `up`, the start of processes, and what has no answer.
    assert!(said.contains("no answer in 30 s") && mute.0 == 3, "{said} after {}", mute.0);
}

/// A recording of an older version has the targets, and not what tells whether they are one.
#[test]
fn a_recording_without_the_counters_of_targets_is_no_proof() {
    struct Old;
    impl kendall_observe::Source for Old {
        fn range(
            &mut self,
            query: &str,
            grid: &Grid,
        ) -> Result<Vec<kendall_observe::Series>, SourceError> {
            if query != "up" && !query.starts_with("sum(rate") {
                let (folder, query) = ("day1".to_owned(), query.to_owned());
                return Err(SourceError::NotRecorded { folder, query });
            }
            let labels = [("job".to_owned(), "a".to_owned())].into();
            Ok(vec![kendall_observe::Series {
                labels,
                values: vec![1.0; usize::try_from(grid.count).unwrap()],
            }])
        }
    }
    let text = "name = 'x'\nentry = 'a'\n[tiers.a]\nservers = 1\nqueries.throughput = 'sum(rate(x[{window}]))'";
    let grid = Grid::new(0, 3_600, 15).unwrap();
    let observed = fetch(&System::parse(text).unwrap(), &mut Old, grid).unwrap();
    let said = observed.tiers[0].maybe_twice.as_ref().unwrap();
    assert!(said.contains("record it again"), "{said}");
}

#[test]
fn an_answer_in_json_is_tried_again_where_the_server_had_no_time() {
    const BUSY: (&str, &str) =
        ("503 Service Unavailable", r#"{"status":"error","error":"not ready"}"#);
    const NAMES: (&str, &str) = ("200 OK", r#"{"status":"success","data":["up"]}"#);
    let (found, given) = asked(&[BUSY, NAMES]);
    assert_eq!((found.unwrap(), given), (vec!["up".to_owned()], 2));
    // No time at all: its own words.
    let (found, given) = asked(&[BUSY, BUSY, BUSY, NAMES]);
    let said = found.unwrap_err().to_string();
    assert!(said.contains("not ready") && given == 3, "{said} after {given}");
}

/// A query that took too long takes as long again, and the server has no time for it.
#[test]
fn a_query_that_timed_out_is_asked_once() {
    const LATE: (&str, &str) = (
        "503 Service Unavailable",
        r#"{"status":"error","errorType":"timeout","error":"query timed out"}"#,
    );
    let (found, given) = asked(&[LATE, LATE, LATE]);
    let said = found.unwrap_err().to_string();
    assert!(said.contains("query timed out") && given == 1, "{said} after {given}");
}

#[test]
fn a_refusal_in_json_says_that_a_name_is_missing() {
    let said =
        asked(&[("401 Unauthorized", r#"{"message":"who are you"}"#)]).0.unwrap_err().to_string();
    assert!(said.contains("401") && said.contains("--basic-file"), "{said}");
}

/// A question that follows to elsewhere would arrive without its form, and be refused for an empty query.
#[test]
fn a_server_that_sends_elsewhere_is_said_to_and_not_followed() {
    const MOVED: (&str, &str) =
        ("302 Found\r\nlocation: https://prom.example/api/v1/x?state=secret", "{}");
    let (found, given) = asked(&[MOVED, MOVED]);
    let said = found.unwrap_err().to_string();
    assert!(said.contains("302 (`https://prom.example/api/v1/x`)") && given == 1, "{said}");
}

/// Each kind of credentials arrives as its standard says (RFC 7617, RFC 6750); without any, no header does.
#[test]
fn credentials_are_sent_with_each_question() {
    let basic = Authentication::Basic { user: "me".to_owned(), password: "secret".to_owned() };
    let cases = [
        (basic, Some("Basic bWU6c2VjcmV0")),
        (Authentication::Bearer("a.b-c".to_owned()), Some("Bearer a.b-c")),
        (Authentication::None, None),
    ];
    for (credentials, expected) in cases {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let head = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> =
                head.map(Result::unwrap).take_while(|l| !l.is_empty()).collect();
            let body = r#"{"status":"success","data":["up"]}"#;
            let close = "content-type: application/json\r\nconnection: close\r\ncontent-length:";
            write!(stream, "HTTP/1.1 200 OK\r\n{close} {}\r\n\r\n{body}", body.len()).unwrap();
            head.iter().find_map(|line| {
                let (key, value) = line.split_once(": ")?;
                key.eq_ignore_ascii_case("authorization").then(|| value.to_owned())
            })
        });
        assert_eq!(Prometheus::new(&url, &credentials).metric_names().unwrap(), ["up"]);
        assert_eq!(server.join().unwrap().as_deref(), expected);
    }
}
