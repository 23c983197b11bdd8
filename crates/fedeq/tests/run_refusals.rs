//! Every experiment that cannot be carried out is refused before anything is trained or written.
mod run_support;

use std::fs;

use run_support::{fedeq, refusal, run_command};
use tempfile::TempDir;

/// Settings, what the error says, and what the hint says.
const REFUSED: &[(&[&str], &str, &str)] = &[
    (&["model=resnet-21"], "`model.name` cannot be `resnet-21`", "did you mean `resnet-20`?"),
    (&["method=fedavgg"], "`method.name` cannot be `fedavgg`", "did you mean `fedavg`?"),
    (&["data=digist"], "`data.source.name` cannot be `digist`", "did you mean `digits`?"),
    (&["data.partition=idd"], "`data.partition.rule` cannot be `idd`", "did you mean `iid`?"),
    (&["preset=papper"], "`preset` cannot be `papper`", "did you mean `paper`?"),
    (&["sed=1"], "there is no key `sed`", "did you mean `seed`?"),
    (&["training.epoch=1"], "there is no key `training.epoch`", "did you mean `training.epochs`?"),
    (&["trainig.epochs=1"], "there is no key `trainig`", "did you mean `training`?"),
    (&["method.roh=1"], "there is no key `method.roh`", "did you mean `method.rho`?"),
    (
        &["model.equilibrium.stop.max_step=1"],
        "there is no key `model.equilibrium.stop.max_step`",
        "did you mean `model.equilibrium.stop.max_steps`?",
    ),
    (&["model.activation=rellu"], "`model.activation` cannot be `rellu`", "did you mean `relu`?"),
    (&["model.equilibrium.solver={ andersen = {} }"], "`model.equilibrium.solver` cannot be `andersen`", "`anderson`"),
    (&["plan.rounds=many"], "`plan.rounds` is `many`", "a whole number"),
    (&["data.copies=9223372036854775807"], "`data.copies` is `9223372036854775807`", "give at most"),
    (
        &["model.equilibrium.solver.anderson.memory=1000000000"],
        "`model.equilibrium.solver.anderson.memory` is `1000000000`",
        "from 1 to 200",
    ),
    (
        &["model.equilibrium.solver.broyden.memory=1000000000"],
        "`model.equilibrium.solver.broyden.memory` is `1000000000`",
        "from 1 to 200",
    ),
    (&["engine.client_memory_mb=9223372036854775807"], "`engine.client_memory_mb` is", "from 1 to 1,000,000,000"),
    (&["model=mlp", "model.hidden=[9223372036854775807]"], "`model.hidden` is `[9223372036854775807]`", "from 1 to 16,384"),
    (&["model=mlp", "model.hidden=[16384,16384,16384]"], "parameters", "smaller widths"),
    (&["training.epochs=9223372036854775807"], "`training.epochs` is", "from 0 to 1,000,000"),
    (&["training.batch_size=9223372036854775807"], "`training.batch_size` is", "from 1 to 1,000,000"),
    (&["training.warm_start=by-sample", "model=mlp"], "`training.warm_start` does not go with `mlp`", "`deq-mlp`"),
    (&["plan.rounds=9223372036854775807"], "`plan.rounds` is", "to 1,000,000"),
    (&["plan.rounds=0"], "`plan.rounds` is `0`", "from 1"),
    (&["model=deq-transformer"], "`deq-transformer` takes sequences of symbols", "choose"),
    (&["data.partition={ rule = 'iid', clients = 0 }"], "`0`", ""),
    (&["data.partition=own"], "leaves the data with the nodes", "fedeq init-federation"),
    (&["plan.sampling.fraction=0.001"], "selects no client", "between 0.036 and 1: the former is one of 28 clients"),
    (&["plan.sampling.fraction=1.5"], "`plan.sampling.fraction` is `1.5`", "above 0 and at most 1"),
    (&["training.learning_rate=-0.1"], "`training.learning_rate` is `-0.1`", "above 0"),
    (&["training.epochs=0", "training.personal_epochs=0"], "nothing is trained", "at least one"),
    (&["engine.workers=1000000"], "`engine.workers` is `1000000`", "from 1 to 4,096"),
    (
        &["training.projection={ ball = 0.9 }"],
        "`training.projection` does not go with `deq-resnet-xs`, which has no matrix to project",
        "leave it out, or choose `deq-mlp`",
    ),
    (
        &["training.initial_heads=own", "method=fedavg", "model=mlp"],
        "`training.initial_heads = own` does not go with `fedavg`",
        "whose clients keep their heads: `fedeq`, `local`, `fedper` or `fedrep`",
    ),
    (&["data=token-arrays", "data.source.vocabulary=300"], "`data.source.vocabulary` is `300`", "from 2 to 256"),
    (&["training.projection={ ball = -1 }", "model=deq-mlp"], "`training.projection.ball` is `-1`", "above 0"),
    (&["training.batch_size=0"], "`training.batch_size`", ""),
    (&["method.rho=-1"], "`method.rho` is `-1`", "at least 0"),
    (&["model.equilibrium.stop.max_steps=0"], "`model.equilibrium.stop.max_steps` is `0`", ""),
    (&["data.unseen={ count = 40 }"], "leaves no client to train", ""),
    (&["data=cifar10"], "`cifar10` is not in the data folder", "fedeq data get cifar10"),
    (&["data=femnist", "data.folder=nowhere"], "nowhere", "fedeq data get femnist"),
    (&["plan.aggregation.rule=medain"], "`plan.aggregation.rule` cannot be `medain`", "did you mean `median`?"),
    (&["plan.aggregation.rule.krum.liars=0.7"], "`plan.aggregation.rule.krum.liars` is `0.7`", "below 0.5"),
    (
        &["plan.aggregation.rule=krum", "plan.sampling.fraction=0.1"],
        "`plan.aggregation.rule.krum.liars = 0.2` is `1` of a round's `2` updates, which takes at least 5",
        "let more clients take part",
    ),
    (&["plan.aggregation.clip.fixed=-1"], "`plan.aggregation.clip.fixed` is `-1`", "a number above 0"),
    (&["plan.aggregation.cap=0.01"], "`plan.aggregation.cap` is `0.01`", "let more clients take part"),
    (
        &["plan.aggregation.rule=median", "method=local"],
        "`plan.aggregation` does not go with a method that sends nothing",
        "leave it out",
    ),
    (
        &["plan.aggregation.rule=median", "plan.asynchronous={}", "method.server_step=consensus"],
        "`plan.aggregation.rule = median` compares the updates of a round",
        "`plan.aggregation.clip` works",
    ),
    (&["attack=sign-flp"], "`attack.kind` cannot be `sign-flp`", "did you mean `sign-flip`?"),
    (&["attack.share=0.3"], "`attack` does not say its `kind`", "set `attack.kind` as well"),
    (&["attack=noise", "attack.share=1"], "`attack.share` is `1`", "below 1"),
    (&["attack=noise", "attack.share=0.01"], "`attack.share = 0.01` of `28` clients selects no client", "give at least"),
    (&["attack=noise", "method=local"], "`attack` does not go with this method, which sends nothing", "another method"),
    (&["attack=label-flip", "attack.strength=2"], "`attack.strength` means nothing to `attack = label-flip`", "leave it out"),
    (&["plan.asynchronous={}"], "`plan.asynchronous` needs a server that takes single updates", "method.server_step=consensus"),
    (&["plan.asynchronous={}", "method=fedavg"], "`plan.asynchronous` needs a server", "`method=fedeq`"),
    (
        &["plan.asynchronous.slowest=0.5", "method.server_step=consensus"],
        "`plan.asynchronous.slowest` is `0.5`",
        "from 1 to 1,000,000",
    ),
    (&["plan.asynchronous.slow=2"], "there is no key `plan.asynchronous.slow`", "did you mean `plan.asynchronous.slowest`?"),
    (&["plan.compression={}"], "`plan.compression` names no codec", "`up`, `down` or both"),
    (&["plan.compression.up=int5"], "`plan.compression.up` cannot be `int5`", "did you mean `int8`?"),
    (&["plan.compression.up.top-k=0"], "`plan.compression.up.top-k` is `0`", "above 0 and at most 1"),
    (&["plan.compression.down.low-rank=0"], "`plan.compression.down.low-rank` is `0`", "from 1 to 1,024"),
    (
        &["plan.compression.up=int8", "plan.compression.keep_rounds=3"],
        "`plan.compression.keep_rounds` is about `down`",
        "leave it out",
    ),
    (
        &["plan.compression.up=int8", "method=local"],
        "`plan.compression` does not go with a method that sends nothing",
        "leave it out",
    ),
    (
        &["plan.compression.up=int8", "plan.sampling.replacement=true"],
        "does not go with `plan.sampling.replacement`",
        "leave one",
    ),
    (&["plan.secure_aggregation.clip=0"], "`plan.secure_aggregation.clip` is `0`", "give a number above 0"),
    (&["plan.secure_aggregation.precision_bits=40"], "`plan.secure_aggregation.precision_bits` is `40`", "from 2 to 24"),
    (
        &["plan.secure_aggregation={}", "plan.aggregation.rule=median"],
        "`plan.secure_aggregation` does not go with `plan.aggregation.rule`",
        "leave one",
    ),
    (
        &["plan.secure_aggregation={}", "plan.compression.up=int8"],
        "`plan.secure_aggregation` does not go with `plan.compression.up`",
        "leave one",
    ),
    (
        &["plan.secure_aggregation={}", "plan.asynchronous={}", "method.server_step=consensus"],
        "`plan.secure_aggregation` does not go with `plan.asynchronous`",
        "leave one",
    ),
    (&["plan.secure_aggregation={}", "attack=sign-flip"], "`attack` does not go with `plan.secure_aggregation`", "label-flip"),
    (
        &["plan.secure_aggregation={}", "method.balance={}"],
        "`method.balance` follows what single clients sent",
        "leave one of the two out",
    ),
    (&["plan.secure_aggregation={}", "method=local"], "a method that sends nothing", "choose another method"),
    (&["plan.secure_aggregation={}", "plan.sampling.fraction=0.05"], "clients a round", "at least 3 clients"),
    (
        &["plan.secure_aggregation={}", "method=fedavg", "method.weighting=samples"],
        "`plan.secure_aggregation.largest_weight` is missing",
        "method.weighting=uniform",
    ),
    (
        &["plan.secure_aggregation.signing_keys=['ab']"],
        "`plan.secure_aggregation.signing_keys`: the key of client `0` is not 64 hexadecimal digits",
        "fedeq node key --signing",
    ),
    (
        &["plan.secure_aggregation={}", "plan.privacy.epsilon=8", "model=deq-mlp"],
        "`plan.privacy` with `plan.secure_aggregation` needs noise by clients",
        "plan.privacy.noise=clients",
    ),
    (
        &[
            "plan.secure_aggregation.precision_bits=4",
            "plan.privacy.noise_multiplier=0.1",
            "plan.privacy.noise=clients",
            "plan.sampling.fraction=0.5",
            "model=deq-mlp",
        ],
        "steps of the ring",
        "precision_bits",
    ),
    (
        &["plan.privacy.epsilon=8", "plan.privacy.noise=clients", "plan.compression.up=int8", "model=deq-mlp"],
        "`plan.privacy` does not go with `plan.compression.up`",
        "plan.privacy.noise=server",
    ),
    (&["data.copies=0"], "`data.copies`", ""),
    (&["engine.device=cpu,cpu"], "`engine.device` is `cpu,cpu`: a run is computed on one device", "name one"),
    (&["engine.device=abacus"], "`engine.device` cannot be `abacus`", "`cpu`, `cuda`"),
    (&["engine.device=cuda:x"], "`engine.device` cannot be `cuda:x`", "`cuda:1`"),
    (&["engine.precision=mixed"], "`engine.precision = mixed` does not go with the device `cpu`", "leave it out"),
    (&["engine.precision=double"], "`engine.precision` cannot be `double`", "mixed, exact"),
    (&["engine.device_memory_mb=100"], "`engine.device_memory_mb` does not go with the device `cpu`", "`--device cuda`"),
    (&["engine.device=cuda", "engine.device_memory_mb=2000000000"], "`engine.device_memory_mb` is", "to 1,000,000,000"),
    (&["engine.earlier_devices=['cuda (mixed)']"], "`engine.earlier_devices` tells", "leave it out"),
    (&["data=synthetic", "data.source.problem={ kind = 'regression' }"], "cannot be `regression`", "classification"),
    (&["data=csv", "data.source.task=numbers"], "`data.source.task` cannot be `numbers`", "classes"),
    (&["rounds"], "`rounds` is not a setting", "key=value"),
];

#[test]
fn what_cannot_be_carried_out_is_refused_with_exit_code_2_and_leaves_nothing_behind() {
    let folder = TempDir::new().expect("a folder");
    for (settings, expected_error, expected_hint) in REFUSED {
        let (error, hint) = refusal(&mut run_command(&folder, "out", settings), 2);
        assert!(error.contains(expected_error), "{settings:?}: {error}");
        assert!(hint.contains(expected_hint), "{settings:?}: {hint}");
        assert!(!folder.path().join("out").exists(), "{settings:?} left something behind");
    }
}

#[test]
fn what_secure_aggregation_does_not_go_with_is_refused_over_flower_too() {
    let folder = TempDir::new().expect("a folder");
    let set = ["init-federation", "--set", "plan.secure_aggregation={}", "--set", "plan.aggregation.rule=median", "--out", "app"];
    let (error, _) = refusal(fedeq(&folder).args(set), 2);
    assert!(error.contains("`plan.secure_aggregation` does not go with `plan.aggregation.rule`"), "{error}");
    assert!(!folder.path().join("app").exists());
}

#[test]
fn a_file_that_is_no_toml_is_named_with_the_line() {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("broken.toml"), "seed = 1\nplan = [\n").expect("writable");
    let (error, _) = refusal(fedeq(&folder).args(["run", "broken.toml"]), 2);
    assert!(error.starts_with("`broken.toml` on line 2"), "{error}");
    let (error, _) = refusal(fedeq(&folder).args(["run", "missing.toml"]), 2);
    assert!(error.starts_with("`missing.toml`: cannot read it"), "{error}");
}

#[test]
fn a_folder_that_cannot_be_written_is_refused() {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("file"), "in the way").expect("writable");
    let (error, _) = refusal(&mut run_command(&folder, "file/out", &[]), 2);
    assert!(error.contains("file"), "{error}");
}

/// A limit on the size of files is the nearest thing to a full disk that needs no disk.
#[cfg(unix)]
#[test]
fn a_full_disk_is_refused_before_training_and_leaves_nothing_behind() {
    let folder = TempDir::new().expect("a folder");
    let script = format!("trap '' XFSZ; ulimit -f 8; exec {} run --out out", env!("CARGO_BIN_EXE_fedeq"));
    let mut command = std::process::Command::new("sh");
    command.current_dir(folder.path()).args(["-c", &script]);
    let (error, hint) = refusal(&mut command, 2);
    assert!(error.contains("cannot write it") && hint.contains("has room"), "{error}; {hint}");
    assert!(!folder.path().join("out").exists());
}

#[test]
fn what_is_no_run_cannot_be_resumed() {
    let folder = TempDir::new().expect("a folder");
    let (error, hint) = refusal(fedeq(&folder).args(["resume", "nowhere"]), 2);
    assert!(error.contains("`nowhere` is not a run folder") && hint.contains("fedeq run"), "{error}; {hint}");
}
