//! Files of LQNS: both formats say the same model, and what does not map is refused in one list.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use kendall_queueing::lqn::{Copies, Layered, LayeredError, Role, Sharing, solve};
use kendall_textbook::lqn::{reader, write};

/// A shop: customers call a web server, which calls a database and writes a log without waiting.
const XML: &str = r#"<?xml version="1.0"?>
<lqn-model name="shop">
  <solver-params comment="" conv_val="1e-5" it_limit="50" print_int="10" underrelax_coeff="0.9"/>
  <processor name="desks" scheduling="inf">
    <task name="customers" scheduling="ref" multiplicity="7" think-time="2">
      <entry name="buy" type="PH1PH2">
        <entry-phase-activities>
          <activity name="buy_1" phase="1" host-demand-mean="0.1">
            <synch-call dest="page" calls-mean="3"/>
          </activity>
        </entry-phase-activities>
      </entry>
    </task>
  </processor>
  <processor name="cores" scheduling="ps" multiplicity="2" speed-factor="2">
    <task name="web" scheduling="fcfs" multiplicity="4">
      <entry name="page" type="PH1PH2">
        <entry-phase-activities>
          <activity name="page_1" phase="1" host-demand-mean="0.06" host-demand-cvsq="2">
            <synch-call dest="query" calls-mean="1.5"/>
          </activity>
          <activity name="page_2" phase="2" host-demand-mean="0.02">
            <asynch-call dest="line" calls-mean="1"/>
          </activity>
        </entry-phase-activities>
      </entry>
    </task>
    <task name="log" scheduling="inf">
      <entry name="line" open-arrival-rate="0.5" type="PH1PH2">
        <entry-phase-activities>
          <activity name="line_1" phase="1" host-demand-mean="0.01"/>
        </entry-phase-activities>
      </entry>
    </task>
  </processor>
  <processor name="disk" scheduling="fcfs">
    <task name="database" scheduling="fcfs">
      <entry name="query" type="PH1PH2">
        <forwarding dest="archive" prob="0.1"/>
        <entry-phase-activities>
          <activity name="query_1" phase="1" host-demand-mean="0.03" think-time="0.001"/>
        </entry-phase-activities>
      </entry>
    </task>
    <task name="old" scheduling="fcfs">
      <entry name="archive" type="PH1PH2">
        <entry-phase-activities>
          <activity name="archive_1" phase="1" host-demand-mean="0.05" call-order="DETERMINISTIC"/>
        </entry-phase-activities>
      </entry>
    </task>
  </processor>
</lqn-model>"#;

const TEXT: &str = r#"# the same
G "shop" 1e-05 50 5 0.9 -1
P 3
  p desks f i
  p cores s 0.0 m 2 R 2
  p disk f
-1
T 5
  t customers r buy -1 desks z 2 m 7
  t web n page -1 cores m 4
  t log i line -1 cores
  t database n query -1 disk
  t old f archive -1 disk
-1
E 5
  s buy 0.1 -1
  y buy page 3 -1
  s page 0.06 0.02 -1
  c page 2 1 -1
  y page query 1.5 0 -1
  z page line 0 1 -1
  s line 0.01 -1   a line 0.5
  s query 0.03 -1
  Z query 0.001 -1
  F query archive 0.1 -1
  s archive 0.05 -1
  f archive 1 -1
-1
"#;

/// Without a note, but on what has no effect.
fn read(ending: &str, text: &str) -> Layered {
    let read = reader(ending).unwrap()(text).unwrap_or_else(|error| panic!("{error}"));
    let idle = |note: &String| {
        ["nobody calls", "no entry comes", "no task runs"].iter().any(|says| note.contains(says))
    };
    assert!(read.notes.iter().all(idle), "{:?}", read.notes);
    read.model
}

fn refusal(ending: &str, text: &str) -> String {
    match reader(ending).unwrap()(text) {
        Ok(read) => panic!("read as {:?}", read.model),
        Err(error) => error.to_string(),
    }
}

#[test]
fn xml_and_text_say_the_same_model() {
    let model = read("lqnx", XML);
    assert_eq!(model, read("lqn", TEXT));
    assert_eq!(model, read("lqnx", &write(&model)));
    assert_eq!(model.processors[1].sharing, Sharing::Ps);
    assert_eq!(model.processors[1].copies, Copies::Limited(2));
    assert_eq!(model.tasks[0].role, Role::Reference { population: 7, think_time: 2.0 });
    assert_eq!(model.tasks[2].role, Role::Server(Copies::Unlimited));
    // Twice as fast: half the demand.
    assert!((model.entries[1].phases[0].demand - 0.03).abs() < 1e-15);
    let solution = solve(&model).unwrap();
    let x = solution.tasks[0].throughput;
    assert!((x - 7.0 / (2.0 + solution.tasks[0].response.unwrap())).abs() < 1e-9);
    // Forced flow: 3 pages, 4.5 queries and 0.45 old ones a purchase.
    for (entry, visits) in [(1, 3.0), (3, 4.5), (4, 0.45)] {
        assert!((solution.entries[entry].throughput / x - visits).abs() < 1e-9);
    }
    assert!((solution.entries[2].throughput - 0.5 - 3.0 * x).abs() < 1e-9);
}

#[test]
fn activities_one_behind_the_other_are_phases() {
    let graph = |post: &str| {
        format!(
            r#"<lqn-model name="a"><processor name="p" scheduling="fcfs">
  <task name="c" scheduling="ref"><entry name="c" type="PH1PH2"><entry-phase-activities>
    <activity name="c1" phase="1" host-demand-mean="1"><synch-call dest="e" calls-mean="1"/></activity>
  </entry-phase-activities></entry></task></processor>
  <processor name="q" scheduling="fcfs"><task name="s" scheduling="fcfs">
    <entry name="e" type="NONE"/>
    <task-activities>
      <activity name="a" bound-to-entry="e" host-demand-mean="0.2"/>
      <activity name="b" host-demand-mean="0.3"/>
      <activity name="d" host-demand-mean="0.4"/>
      <precedence><pre><activity name="a"/></pre><post><activity name="b"/></post></precedence>
      <precedence><pre><activity name="b"/></pre>{post}</precedence>
      <reply-entry name="e"><reply-activity name="b"/></reply-entry>
    </task-activities></task></processor></lqn-model>"#
        )
    };
    let model = read("lqnx", &graph(r#"<post><activity name="d"/></post>"#));
    let demands: Vec<f64> = model.entries[1].phases.iter().map(|phase| phase.demand).collect();
    assert_eq!(demands, [0.5, 0.4]);
    let half =
        r#"<post-OR><activity name="d" prob="0.25"/><activity name="f" prob="0.75"/></post-OR>"#;
    let half = graph(half)
        .replace(r#"<activity name="d" h"#, r#"<activity name="f"/><activity name="d" h"#);
    let demands: Vec<f64> =
        read("lqnx", &half).entries[1].phases.iter().map(|phase| phase.demand).collect();
    assert_eq!(demands, [0.5, 0.1]);
    let circle =
        r#"<post-OR><activity name="d" prob="0.5"/><activity name="a" prob="0.5"/></post-OR>"#;
    let refused = refusal("lqnx", &graph(circle));
    assert!(refused.contains("`a` reached twice"), "{refused}");
    let more = r#"<post-OR><activity name="d" prob="0.5"/></post-OR>"#;
    assert!(!refusal("lqnx", &graph(&more.replace("0.5", "NaN"))).is_empty());
}

/// A customer of one server, whose activities these are, behind `s`.
fn one_server(activities: &str) -> String {
    format!(
        "G \"\" 1e-5 50 5 0.9 -1 P 2 p c f p cpu f -1 \
         T 2 t c r e -1 c t s n s -1 cpu -1 E 2 s e 1 -1 y e s 1 -1 A s s -1 \
         A s s s 0.25 s a 0.4 s b 0.6 s z 0.25 : {activities} -1"
    )
}

/// Models 40, 41, 44 and 48 of the regression suite that LQNS 5 is kept with
/// (github.com/layeredqueuing/V5, models/regression): throughput as its simulator found it, to 1 %. LQNS is
/// off by 4.2 % for 40 and by 7 % for 48.
#[test]
fn published_activities_are_met() {
    let fork = "s -> a & b; a & b -> z; z[s]";
    let alone = one_server(fork)
        .replace(
            "T 2 t c r e -1 c t s n s -1 cpu -1 E 2 s e 1 -1 y e s 1 -1",
            "T 1 t s r s -1 cpu -1 E 1",
        )
        .replace("z[s]", "z");
    for (text, published, percent) in [
        (one_server(fork), 0.400151, 6.0),
        (one_server("s -> (0.25) a + (0.75) b; a + b -> z; z[s]"), 0.488887, 1.0),
        (one_server("s -> 0.5 * b, z; z[s]").replace("s b 0.6", "s b 1"), 0.500493, 1.0),
        (alone, 0.666314, 7.0),
    ] {
        let x = solve(&read("lqn", &text)).unwrap().tasks[0].throughput;
        let error = 100.0 * (x / published - 1.0).abs();
        assert!(error < percent, "{x} against {published}, {error:.1} %: {text}");
    }
}

/// A search in two indexes at once, of which one looks a second time now and then.
#[test]
fn what_is_called_at_once_is_read_and_written() {
    let text = one_server("s -> a & b; a & b -> z; z[s] -> w; ")
        .replace("s z 0.25", "s z 0.25 s w 0.5 y z i 2 y b i 1")
        .replace("P 2", "P 3 p r s m 2")
        .replace("T 2", "T 3 t i n i j -1 r m 3")
        .replace("E 2", "E 4 s i 0.1 -1 s j 0.2 -1 y e j 0.5 -1");
    let model = read("lqn", &text);
    let server = model.entries.iter().find(|entry| entry.name == "s").unwrap();
    assert_eq!(server.phases.len(), 2);
    assert_eq!(server.phases[0].forks.len(), 1);
    let names: Vec<&str> =
        server.phases[0].forks[0].entries.iter().map(|e| model.entries[*e].name.as_str()).collect();
    assert_eq!(names, ["s/a", "s/b"]);
    let again = read("lqnx", &write(&model));
    let sorted = |model: &Layered| {
        let mut entries: Vec<String> = (model.entries.iter())
            .map(|entry| {
                format!(
                    "{} {:?}",
                    entry.name,
                    entry.phases.iter().map(|p| (p.demand, p.forks.len())).collect::<Vec<_>>()
                )
            })
            .collect();
        entries.sort();
        entries
    };
    assert_eq!(sorted(&again), sorted(&model));
    let (x, y) = (solve(&model).unwrap(), solve(&again).unwrap());
    assert!((x.tasks[0].throughput - y.tasks[0].throughput).abs() < 1e-7 * x.tasks[0].throughput);
    let table: toml::Table = model.to_toml().parse().unwrap();
    let again = Layered::read(&table).unwrap();
    assert_eq!(sorted(&again), sorted(&model));
    let y = solve(&again).unwrap();
    assert!((x.tasks[0].throughput - y.tasks[0].throughput).abs() < 1e-7 * x.tasks[0].throughput);
}

#[test]
fn graphs_without_a_meaning_are_refused() {
    for (links, what) in [
        ("s -> a & b; a & b -> z; a[s]", "a reply or an end in one of several in parallel"),
        ("s -> a & b; a -> z; z[s]", "a reply or an end"),
        ("s -> a & b; a + b -> z; z[s]", "do not all meet at one join"),
        ("s -> (0.5)a + (0.4)b; a + b -> z", "add to 0.9"),
        ("s -> (0.5)a + (0.5)b; a & b -> z", "a join that waits for alternatives"),
        ("s -> a; a -> s", "reached twice"),
        ("s -> a; s -> b", "two that follow"),
        ("s -> q", "activities of task `s`: `q` in `q` is no activity of the task"),
        ("s -> a & b; a & b (1) -> z", "a quorum"),
        ("s -> x * a, z", "`x` is not a finite number"),
    ] {
        match reader("lqn").unwrap()(&one_server(links)) {
            Ok(read) => panic!("{links}: {:?}", read.model.entries),
            Err(error) => assert!(error.to_string().contains(what), "{links}: {error}"),
        }
    }
}

#[test]
fn what_does_not_map_is_refused_in_one_list() {
    let text = XML
        .replace(r#"scheduling="ps""#, r#"scheduling="pp""#)
        .replace(
            r#"name="web" scheduling="fcfs""#,
            r#"name="web" scheduling="semaphore" replication="2""#,
        )
        .replace(r#"dest="line""#, r#"dest="lines""#);
    let refused = refusal("lqnx", &text);
    for part in [
        "scheduling `pp` of processor `cores`",
        "scheduling `semaphore` of task `web`",
        "replication of `web`",
        "`page` calls `lines`, which is no entry",
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    let text = TEXT.replace("log i", "log S").replace("cores s 0.0", "cores h") + "A web s a 1 -1";
    let refused = refusal("lqn", &text);
    for part in ["scheduling `hol`", "scheduling `semaphore`"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    let variable = TEXT.replace("s buy 0.1", "s buy $work");
    assert!(
        refusal("lqn", &variable)
            .contains("line 16, column 9: entry `buy`: `$work` is a variable of SPEX")
    );
}

#[test]
fn hostile_files_are_refused() {
    for (ending, text) in [("lqnx", XML), ("lqn", TEXT)] {
        let read = reader(ending).unwrap();
        for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
            if let Ok(read) = read(&text[..cut]) {
                // What is left is solved or refused.
                drop(solve(&read.model));
            }
        }
        for number in ["NaN", "inf", "-1", "1e999", "1e300", "0", "", "\"", "18446744073709551616"]
        {
            for place in ["0.03", "1.5", " 2", "\"2\"", "7", "0.5", "0.1"] {
                if let Ok(read) = read(&text.replace(place, number)) {
                    drop(solve(&read.model));
                }
            }
        }
    }
    let deep = format!("<lqn-model>{}", "<processor name=\"p\">".repeat(200_000));
    assert!(reader("lqnx").unwrap()(&deep).is_err());
    let circle = XML.replace(
        r#"<activity name="query_1""#,
        r#"<activity name="query_2" phase="2"><synch-call dest="page"/></activity><activity name="query_1""#,
    );
    match solve(&read("lqnx", &circle)) {
        Err(LayeredError::Cycle { path, .. }) => assert_eq!(path, "`web` → `database` → `web`"),
        other => panic!("{other:?}"),
    }
    let many = XML.replace(r#"multiplicity="7""#, r#"multiplicity="900000000000000""#);
    let solution = solve(&read("lqnx", &many));
    assert!(!matches!(solution, Err(LayeredError::Empty(_))), "{solution:?}");
}

#[test]
fn hostile_documents_are_refused_with_their_line() {
    let three = "line 9, column 13: <synch-call> `page`, attribute `calls-mean`: `three`";
    for (part, other, says) in [
        (r#"calls-mean="3""#, r#"calls-mean="three""#, three),
        (
            r#"multiplicity="7""#,
            r#"multiplicity="1.5""#,
            "line 5, column 5: <task> `customers`, attribute `multiplicity`",
        ),
        (r#"speed-factor="2""#, r#"speed-factor="$f""#, "line 15, column 3: <processor> `cores`"),
        (r#"dest="query" "#, "", "line 20, column 13: <synch-call>: has no attribute `dest`"),
        ("<task name=\"old\"", "<task", "line 45, column 5: <task>: has no attribute `name`"),
    ] {
        let refused = refusal("lqnx", &XML.replacen(part, other, 1));
        assert!(refused.contains(says), "{says}: {refused}");
    }
}

/// A server whose activities these are, behind `a` and `b`, of which the latter replies.
fn with_activities(more: &str) -> String {
    let server = r#"<task name="log" scheduling="inf">
      <entry name="line" type="NONE"/>
      <task-activities>
        <activity name="a" bound-to-entry="line" host-demand-mean="0.01"/>
        <activity name="b"/>
        <precedence><pre><activity name="a"/></pre><post><activity name="b"/></post></precedence>
        MORE
      </task-activities></task>"#;
    let (before, rest) = XML.split_once("<task name=\"log\"").unwrap();
    let (_, after) = rest.split_once("</task>").unwrap();
    format!("{before}{}{after}", server.replace("MORE", more))
}

/// Each of these was read as if it were not there.
#[test]
fn names_that_are_none_are_refused_with_their_line() {
    let reply = r#"<reply-entry name="line"><reply-activity name="b"/></reply-entry>"#;
    assert!(reader("lqnx").unwrap()(&with_activities(reply)).unwrap().notes.is_empty());
    for (more, says) in [
        (
            reply.replace("\"b\"", "\"c\""),
            "a reply by `c`, which is no activity of task `log` (line 34, column 34)",
        ),
        (
            reply.replace("\"line\"", "\"page\""),
            "a reply to `page`, which is no entry of task `log` (line 34, column 9)",
        ),
        (
            format!(
                "{reply}<precedence><pre><activity name='b'/></pre><post><activity name='z'/></post>\
                 </precedence>"
            ),
            "`z`, which is no activity of task `log` (line 34, column ",
        ),
        (format!("{reply}<activity name='a'/>"), "two activities called `a` (line 34, column "),
        (
            format!("{reply}<activity name='c' bound-to-entry='line'/>"),
            "two activities bound to `line`: `a` and `c` (line 34, column ",
        ),
        (
            format!("{reply}<activity name='c' bound-to-entry='page'/>"),
            "activity `c` bound to `page`, which is no entry of its task (line 34, column ",
        ),
        (
            format!("{reply}<activity name='c' host-demand='1'/>"),
            "attribute `host-demand` of <activity> `c`, which LQNS does not know (line 34, column ",
        ),
        (format!("{reply}<activty/>"), "<activty> in <task-activities>, which LQNS does not know"),
    ] {
        let refused = refusal("lqnx", &with_activities(&more));
        assert!(refused.contains(says), "{says}: {refused}");
    }
    for (more, says) in [
        ("", "no activity replies to `line`: its end does"),
        (
            &*format!("{reply}<activity name='c'/>"),
            "activities of task `log` to which no entry comes: `c`",
        ),
    ] {
        let read = reader("lqnx").unwrap()(&with_activities(more)).unwrap();
        assert_eq!(read.notes, [says]);
    }
    for (part, other, says) in [
        ("calls-mean=\"1.5\"", "calls-maen=\"1.5\"", "`calls-maen` of <synch-call>"),
        ("speed-factor", "speed", "`speed` of <processor> `cores`"),
        ("multiplicity=\"4\"", "think-time=\"4\"", "a think time of task `web`, which is no"),
        ("\"DETERMINISTIC\"", "\"SOME\"", "the order of calls `SOME` of `archive_1`"),
        ("phase=\"2\"", "phase=\"1\"", "two activities of one phase of `page`"),
    ] {
        let refused = refusal("lqnx", &XML.replacen(part, other, 1));
        assert!(refused.contains(says) && refused.contains("(line "), "{says}: {refused}");
    }
    let unused = XML.replacen("</lqn-model>", "<processor name=\"idle\"/></lqn-model>", 1);
    let unused = unused.replacen("open-arrival-rate=\"0.5\"", "", 1);
    let unused = unused.replacen("<asynch-call dest=\"line\" calls-mean=\"1\"/>", "", 1);
    let read = reader("lqnx").unwrap()(&unused).unwrap();
    assert_eq!(read.notes, ["no task runs on `idle`", "nobody calls `line`"]);
}

/// What only a solver finds is told by the element, whose line the reader knows.
#[test]
fn what_a_solver_refuses_has_a_path_with_a_line() {
    for (ending, text, part, other, path, line) in [
        ("lqnx", XML, "cvsq=\"2\"", "cvsq=\"1e-60\"", "entries.1", 17),
        ("lqnx", XML, "rate=\"0.5\"", "rate=\"5e5\"", "processors.1", 15),
        ("lqn", TEXT, "line 0.5", "line 5e5", "processors.1", 5),
        ("lqn", TEXT, "buy page 3", "buy buy 3", "entries.0", 9),
    ] {
        let read = reader(ending).unwrap()(&text.replacen(part, other, 1)).unwrap();
        let error = solve(&read.model).unwrap_err();
        assert_eq!(error.path().as_deref(), Some(path), "{error}");
        assert_eq!(read.lines.find(path), Some(line), "{error}");
    }
}

#[test]
fn hostile_texts_are_refused_with_their_line() {
    for (part, other, says) in [
        (
            "z 2 m 7",
            "z -2 m 7",
            "line 9, column 32: task `customers`: `-2` stands where a number from 0 should be",
        ),
        (
            "m 4",
            "m 1000000000000000000",
            "line 10, column 27: task `web`: `1000000000000000000` is not a whole number",
        ),
        ("m 4", "m 1.5", "task `web`: `1.5` is not a whole number from 1 to 1e15"),
        (
            "s page 0.06 0.02",
            "s page NaN 0.02",
            "line 18, column 10: entry `page`: `NaN` is not a finite number",
        ),
        (
            "s page 0.06 0.02",
            "s page 0.06 -0.02",
            "line 18, column 15: entry `page`: `-0.02` stands where",
        ),
        (
            "y buy page 3",
            "y buy page inf",
            "line 17, column 14: entry `buy`: `inf` is not a finite number",
        ),
        ("  s line", "  s \u{1b}[2J", "line 22, column 5: the file: `\\u{1b}` is no character"),
        ("t old f", "t log f", "two tasks called `log` (line 13, column 5)"),
        ("f archive -1", "f archive line -1", "two entries called `line` (line 13, column 19)"),
        ("p disk f", "p cores f", "two processors called `cores` (line 6, column 5)"),
        ("G \"shop\"", "G \"shop", "line 2, column 3: the file: a quotation mark is not closed"),
        (TEXT, "", "line 1, column 1: the file: it ends before its tasks (T)"),
        ("T 5", "E 5", "line 9, column 5: the entries (E): `customers` is no entry of a task"),
    ] {
        let refused = refusal("lqn", &TEXT.replacen(part, other, 1));
        assert!(refused.contains(says), "{says}: {refused}");
    }
    // What follows what, with a word that is no arrow, a name that is none of the task, and a reply to nobody.
    for (links, says) in [
        ("start => end[line]", "`start=>end` in `start=>end[line]` is no activity"),
        ("start -> last; last[line]", "`last` in `last` is no activity"),
        ("start -> end; end[nope]", "a reply to `nope`, which is no entry"),
    ] {
        let activities = format!("A log s start 0.01 s end 0.02 : {links} -1");
        let text = TEXT.replacen("  s line 0.01 -1   a line 0.5", "  A line start", 1);
        let refused = refusal("lqn", &format!("{text}{activities}"));
        assert!(refused.contains(says), "{says}: {refused}");
    }
    let marked = format!("\u{feff}{TEXT}");
    assert_eq!(read("lqn", &marked), read("lqn", TEXT));
    let many = "a ".repeat(2_000_001);
    assert!(refusal("lqn", &many).contains("more than 2000000 words"));
    // Every entry would be made of 101 activities and calls.
    let entries: String = (0..600).map(|n| format!("e{n} ")).collect();
    let starts: String = (0..600).map(|n| format!("A e{n} a ")).collect();
    let text = format!(
        "P 1 p p f -1 T 3 t c r c -1 p t s n {entries}-1 p t x n x -1 p -1 E 1 s c 1 -1 {starts}-1 \
         A s s a 1 {}-1",
        "y a x 0.01 ".repeat(100)
    );
    let refused = refusal("lqn", &text);
    assert!(refused.contains("entries of more than 50000 activities and calls"), "{refused}");
    let text = format!("P 1 p p f -1 T 1 {}-1", "t a f b -1 nowhere ".repeat(3));
    assert!(refusal("lqn", &text).contains("two entries called `b`"));
    let text: String = (0..200).map(|n| format!("t t{n} f e{n} -1 nowhere ")).collect();
    let refused = refusal("lqn", &format!("P 1 p p f -1 T 1 {text}-1"));
    assert!(refused.ends_with("; and 150 more"), "{refused}");
}

/// Tables of two tasks, and names of all of a circle, outgrew the memory and the terminal.
#[test]
fn models_of_many_tasks_are_refused_soon() {
    let model = |calls: &str| {
        let tasks: String = (0..3000).map(|n| format!("t t{n} n e{n} -1 p ")).collect();
        read("lqn", &format!("P 1 p p f -1 T 1 t c r c -1 p z 1 {tasks}-1 E 1 s c 1 -1 {calls}-1"))
    };
    assert!(matches!(solve(&model("")), Err(LayeredError::TooLarge { .. })));
    let circle: String = (0..3000).map(|n| format!("y e{n} e{} 1 -1 ", (n + 1) % 3000)).collect();
    match solve(&model(&circle)) {
        Err(LayeredError::Cycle { path, .. }) => assert!(path.ends_with(" → 2981 more"), "{path}"),
        other => panic!("{other:?}"),
    }
}
