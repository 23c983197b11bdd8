//! The first thing a newcomer runs, cut short.
mod run_support;

use std::fs;

use run_support::{fedeq, refusal, succeed};
use tempfile::TempDir;

#[test]
fn the_demonstration_ends_with_a_table_a_verdict_and_a_report() {
    let folder = TempDir::new().expect("a folder");
    let output = succeed(fedeq(&folder).args(["demo", "--rounds", "1", "--seeds", "2"]));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    for method in ["Local", "FedAvg", "FedRep", "FeDEQ"] {
        let row = text.lines().find(|line| line.starts_with(method)).unwrap_or_else(|| panic!("no {method} in:\n{text}"));
        assert_eq!(row.matches(" ± ").count(), 3, "shared, local and worst tenth, over seeds: {row}");
    }
    assert!(
        text.contains("FeDEQ shares an equilibrium layer of 15,824 parameters") && text.contains("2.7 times as many"),
        "{text}"
    );
    for view in ["(shared), FeDEQ has ", "(local), FeDEQ has "] {
        assert!(text.contains(view), "both views are told: {text}");
    }
    assert!(text.lines().any(|line| line.starts_with("Local") && line.contains("nothing")), "Local sends nothing: {text}");
    let report = fs::read_to_string(folder.path().join("runs/demo/report.html")).expect("written");
    assert!(
        report.contains("FeDEQ has ")
            && report.contains("\"run\":\"fedrep-1\"")
            && report.contains("\"confusions\":{\"fedavg-0\":{\"clients\":[{\"client\":")
    );
    for run in ["local-0", "fedavg-1", "fedrep-0", "fedeq-1"] {
        assert!(folder.path().join("runs/demo").join(run).join("summary.json").is_file());
    }
    assert!(String::from_utf8_lossy(&output.stderr).contains("Thirty clients"));
}

#[test]
fn a_demonstration_that_cannot_be_written_is_refused() {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("runs"), "in the way").expect("written");
    let (error, _) = refusal(fedeq(&folder).args(["demo", "--quiet", "--rounds", "1", "--seeds", "1"]), 2);
    assert!(error.contains("runs/demo"), "{error}");
    assert_eq!(refusal(fedeq(&folder).args(["demo", "--quiet", "--rounds", "0"]), 2).0, "`plan.rounds` is `0`");
    for seeds in ["0", "10001", "18446744073709551615"] {
        let output = fedeq(&folder).args(["demo", "--quiet", "--seeds", seeds]).output().expect("it starts");
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && words.contains(seeds) && words.contains("10000"), "{words}");
    }
}
