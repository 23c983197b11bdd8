//! What shells complete.
mod run_support;

use run_support::{fedeq, run, succeed};
use tempfile::TempDir;

/// What a shell is told can stand as the last of some words.
fn completed(folder: &TempDir, words: &[&str]) -> Vec<String> {
    let output = succeed(fedeq(folder).env("FEDEQ_COMPLETE", "fish").args(["--", "fedeq"]).args(words));
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn completion_knows_keys_values_names_and_folders() {
    let folder = TempDir::new().expect("a folder");
    run(&folder, "runs/first", &[]);
    let is_among = |words: &[&str], expected: &str| {
        let found = completed(&folder, words);
        assert!(found.iter().any(|one| one == expected), "{words:?}: {found:?}");
    };
    is_among(&["run", "--set", "training.learn"], "training.learning_rate=");
    is_among(&["run", "--set", "method.server_step="], "method.server_step=consensus");
    is_among(&["run", "--set", "data="], "data=cifar10");
    is_among(&["sweep", "--grid", "method=fedeq,fedr"], "method=fedeq,fedrep");
    is_among(&["sweep", "--grid", "method=fedeq,fedrep", "--with", "method:model="], "method:model=deq-mlp");
    is_among(
        &["sweep", "--grid", "method=fedeq,fedrep", "--with", "method:model=deq-mlp,resnet-x"],
        "method:model=deq-mlp,resnet-xs",
    );
    is_among(&["sweep", "--grid", "method=fedeq,fedrep", "--with", "method:training.learn"], "method:training.learning_rate=");
    is_among(&["run", "--device", "cu"], "cuda");
    is_among(&["data", "get", "cif"], "cifar10");
    let fetched = completed(&folder, &["data", "get", ""]);
    assert!(!fetched.iter().any(|name| name == "digits"), "there is nothing to fetch: {fetched:?}");
    is_among(&["run", "--preset", "p"], "paper");
    is_among(&["run", "--model", "deq-"], "deq-mlp");
    is_among(&["run", "--method", ""], "ditto");
    is_among(&["data", "inspect", "cif"], "cifar100");
    is_among(&["reproduce", "table"], "table-1");
    is_among(&["compare", "runs/f"], "runs/first");
    is_among(&["settings", "plan.pri"], "plan.privacy.epsilon");
}

/// What bash makes of lines that end with a tab, word by word. It runs in a session of its own: an interactive shell takes the terminal it finds.
#[cfg(target_os = "linux")]
fn completed_by_bash(folder: &TempDir, lines: &[&str]) -> Vec<Vec<String>> {
    use std::io::Write;
    use std::process::{Command, Stdio};

    let script = succeed(fedeq(folder).args(["completions", "bash"])).stdout;
    std::fs::write(folder.path().join("completions.bash"), script).expect("written");
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_fedeq")).parent().expect("a folder").display();
    let mut bash = Command::new("setsid")
        .args(["--wait", "bash", "--norc", "--noprofile", "-i"])
        .current_dir(folder.path())
        .env_remove("FEDEQ_DATA")
        .envs([("TERM", "dumb"), ("INPUTRC", "/dev/null"), ("HISTFILE", "/dev/null")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("bash starts");
    let typed: String = lines.iter().map(|line| format!("show {line}\t\n")).collect();
    let begin = format!(
        "PATH={program}:$PATH; source completions.bash; show() {{ printf '[%s]' \"$@\"; echo; }}; complete -o nospace -F _fedeq show\n"
    );
    let mut stdin = bash.stdin.take().expect("piped");
    stdin.write_all(format!("{begin}{typed}exit\n").as_bytes()).expect("it listens");
    drop(stdin);
    let output = String::from_utf8(bash.wait_with_output().expect("it ends").stdout).expect("text");
    let shown = output.lines().filter_map(|line| line.strip_prefix('[')?.strip_suffix(']'));
    shown.map(|words| words.split("][").map(str::to_owned).collect()).collect()
}

#[cfg(target_os = "linux")]
#[test]
fn bash_completes_values_although_it_splits_words_at_equals_signs_and_colons() {
    let folder = TempDir::new().expect("a folder");
    std::fs::create_dir_all(folder.path().join("runs/first")).expect("made");
    let cases = [
        ("run --set training.learning_ra", "training.learning_rate="),
        ("run --set method.server_step=cons", "method.server_step=consensus"),
        ("run --set data=dig", "data=digits"),
        ("run --set=data=dig", "--set=data=digits"),
        ("sweep --grid method=fedeq,fedre", "method=fedeq,fedrep"),
        ("sweep --grid method=fedeq,fedrep --with method:model=deq-resnet-x", "method:model=deq-resnet-xs"),
        ("sweep --grid method=fedeq,fedrep --with method:training.learning_ra", "method:training.learning_rate="),
        ("sweep --grid \"method=fedeq,fedre", "method=fedeq,fedrep"),
        ("run --set plan.rounds=3 --model deq-resnet-x", "deq-resnet-xs"),
        ("reproduce fig-rh", "fig-rho"),
        ("compare runs/fi", "runs/first/"),
    ];
    let lines: Vec<&str> = cases.iter().map(|(typed, _)| *typed).collect();
    let found = completed_by_bash(&folder, &lines);
    let last: Vec<Option<&str>> = found.iter().map(|words| words.last().map(String::as_str)).collect();
    assert_eq!(last, cases.map(|(_, expected)| Some(expected)), "{found:?}");
}
