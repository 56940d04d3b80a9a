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

fn read(ending: &str, text: &str) -> Layered {
    let read = reader(ending).unwrap()(text).unwrap_or_else(|error| panic!("{error}"));
    assert!(read.notes.is_empty(), "{:?}", read.notes);
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
    let branch =
        r#"<post-OR><activity name="d" prob="0.5"/><activity name="a" prob="0.5"/></post-OR>"#;
    let refused = refusal("lqnx", &graph(branch));
    assert!(refused.contains("branches, joins or loops of activities of task `s`"), "{refused}");
    let circle = r#"<post><activity name="a"/></post>"#;
    assert!(refusal("lqnx", &graph(circle)).contains("in a circle"));
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
    for part in ["scheduling `hol`", "scheduling `semaphore`", "activities of `web`"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    let variable = TEXT.replace("s buy 0.1", "s buy $work");
    assert!(refusal("lqn", &variable).contains("line 16: `$work` is a variable of SPEX"));
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
        Err(LayeredError::Cycle(path)) => assert_eq!(path, "`web` → `database` → `web`"),
        other => panic!("{other:?}"),
    }
    let many = XML.replace(r#"multiplicity="7""#, r#"multiplicity="900000000000000""#);
    let solution = solve(&read("lqnx", &many));
    assert!(!matches!(solution, Err(LayeredError::Empty(_))), "{solution:?}");
}
