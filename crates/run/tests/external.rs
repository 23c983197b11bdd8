//! Networks that are computed outside of fedeq: they train, are checkpointed and are compared as ours are, and what needs one of ours is refused.
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fedeq_core::{Array, Error, Event, LocalProblem, Observer, Params, Result, Training, Weights};
use fedeq_cpu::{ExternalNetwork, Network, NetworkProblem};
use fedeq_data::shard::{Batch, Inputs, Shard, Targets};
use fedeq_models::ModelConfig;
use fedeq_run::experiment::{Experiment, ExternalModel, Override};
use fedeq_run::export::export;
use fedeq_run::run::{Run, RunFolder, RunSummary, Silent, Trained, Which};

const CLASSES: usize = 10;

fn overrides(settings: &[&str]) -> Vec<Override> {
    settings.iter().map(|text| text.parse().expect("a setting")).collect()
}

/// A small federation on digits.
const TINY: [&str; 6] = [
    "plan.rounds=2",
    "plan.evaluate_every=1",
    "plan.sampling.fraction=0.2",
    "training.epochs=2",
    "training.batch_size=8",
    "engine.checkpoint_every=1",
];

fn ours(settings: &[&str]) -> Experiment {
    Experiment::read(None, &overrides(&[&TINY, settings].concat())).expect("an experiment")
}

fn theirs(settings: &[&str], model: &ExternalModel) -> Experiment {
    read(settings, model).expect("an experiment")
}

fn read(settings: &[&str], model: &ExternalModel) -> Result<Experiment> {
    Experiment::read(None, &model.over(&overrides(&[&TINY, settings].concat()))?)
}

/// `logits = x W + b` with the gradient of the mean cross-entropy, in double precision, written down once more.
struct SoftmaxRegression {
    /// Fails at every call.
    is_broken: AtomicBool,
}

impl SoftmaxRegression {
    fn new() -> Self {
        Self { is_broken: AtomicBool::new(false) }
    }

    fn parts(parameters: &Params, batch: &Batch) -> (Vec<f64>, Vec<f64>, Vec<f64>, usize) {
        let Inputs::Dense { values, shape } = &batch.inputs else { panic!("pictures") };
        let wide = |values: &[f32]| values.iter().map(|&value| f64::from(value)).collect::<Vec<f64>>();
        let get = |name: &str| wide(&parameters.get(name).expect("a parameter").values);
        (wide(values), get("output.weight"), get("output.bias"), shape[1..].iter().product())
    }

    fn rows(parameters: &Params, batch: &Batch) -> Vec<Vec<f64>> {
        let (x, weight, bias, width) = Self::parts(parameters, batch);
        let row = |x: &[f64]| {
            let class = |class: usize| bias[class] + (0..width).map(|at| x[at] * weight[at * CLASSES + class]).sum::<f64>();
            (0..CLASSES).map(class).collect()
        };
        x.chunks(width).map(row).collect()
    }

    fn asked(&self) -> Result<()> {
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(Error::invalid("it broke", "mend it"));
        }
        Ok(())
    }
}

impl ExternalNetwork for SoftmaxRegression {
    fn computed_by(&self) -> &str {
        "a test"
    }

    fn loss_and_gradient(&self, _: &str, parameters: &Params, batch: &Batch, _: Option<u64>) -> Result<(f64, Params)> {
        self.asked()?;
        let (x, weight, _, width) = Self::parts(parameters, batch);
        let Targets::Classes(classes) = &batch.targets else { panic!("classes") };
        let (mut loss, mut of_weight, mut of_bias) = (0.0, vec![0.0; weight.len()], vec![0.0; CLASSES]);
        let share = 1.0 / batch.len() as f64;
        for ((x, logits), &class) in x.chunks(width).zip(Self::rows(parameters, batch)).zip(classes) {
            let sum: f64 = logits.iter().map(|logit| logit.exp()).sum();
            loss += share * (sum.ln() - logits[class as usize]);
            for (at, logit) in logits.iter().enumerate() {
                let slope = share * (logit.exp() / sum - if at == class as usize { 1.0 } else { 0.0 });
                of_bias[at] += slope;
                (0..width).for_each(|from| of_weight[from * CLASSES + at] += slope * x[from]);
            }
        }
        let array =
            |shape: Vec<usize>, values: Vec<f64>| Array::new(shape, values.into_iter().map(|value| value as f32).collect());
        let gradient = [
            ("output.weight".to_owned(), array(vec![width, CLASSES], of_weight)),
            ("output.bias".to_owned(), array(vec![CLASSES], of_bias)),
        ];
        Ok((loss, gradient.into_iter().collect()))
    }

    fn logits(&self, _: &str, parameters: &Params, batch: &Batch) -> Result<Vec<f32>> {
        self.asked()?;
        Ok(Self::rows(parameters, batch).concat().into_iter().map(|value| value as f32).collect())
    }
}

/// A network of ours as if it were somebody else's: its kernels compute batches of eight, which no division rounds.
struct OurOwn {
    network: Arc<Network>,
    dataset: Arc<fedeq_data::Dataset>,
    /// Gives the gradient without its first array.
    forgets: bool,
}

impl OurOwn {
    fn problem(&self, batch: &Batch) -> Result<(NetworkProblem, Shard)> {
        let shard = || Shard::new(Arc::clone(&self.dataset), batch.ids.iter().map(|&id| id as u32).collect());
        let none = || Shard::new(Arc::clone(&self.dataset), Vec::new());
        let problem = NetworkProblem::new(Arc::clone(&self.network), [shard()?, none()?, none()?], &Training::default());
        Ok((problem, shard()?))
    }
}

fn weights(parameters: &Params) -> Weights {
    Weights { params: parameters.clone(), ..Weights::default() }
}

impl ExternalNetwork for OurOwn {
    fn computed_by(&self) -> &str {
        "a test"
    }

    fn loss_and_gradient(&self, _: &str, parameters: &Params, batch: &Batch, _: Option<u64>) -> Result<(f64, Params)> {
        let (loss, gradient) = self.problem(batch)?.0.gradient(&weights(parameters))?;
        let first = gradient.iter().next().map(|(name, _)| name.to_owned());
        Ok((loss, gradient.filter(|name| !self.forgets || Some(name) != first.as_deref())))
    }

    fn logits(&self, _: &str, parameters: &Params, batch: &Batch) -> Result<Vec<f32>> {
        let (problem, shard) = self.problem(batch)?;
        let rows = problem.probabilities(&weights(parameters), &shard, None)?;
        Ok(rows.concat().into_iter().map(|probability| probability.max(f32::MIN_POSITIVE).ln()).collect())
    }
}

/// A network of ours by its name, as somebody else's.
fn as_theirs(name: &str, forgets: bool) -> ExternalModel {
    let prepared = ours(&[&format!("model={name}")]).prepare().expect("sound");
    let own = OurOwn { network: Arc::clone(&prepared.network), dataset: Arc::clone(&prepared.dataset), forgets };
    ExternalModel { name: "own".into(), initial: prepared.initial().params, network: Some(Arc::new(own)) }
}

fn regression() -> (ExternalModel, Arc<SoftmaxRegression>) {
    let (initial, network) =
        (ours(&["model=linear"]).prepare().expect("sound").initial().params, Arc::new(SoftmaxRegression::new()));
    (ExternalModel { name: "softmax".into(), initial, network: Some(Arc::clone(&network) as Arc<dyn ExternalNetwork>) }, network)
}

fn train(run: Result<Run>) -> RunSummary {
    run.and_then(|run| run.train(&mut Silent, &|| false)).unwrap_or_else(|error| panic!("{error}: {}", error.hint()))
}

/// All numbers of all models of a finished run, by client.
fn models(folder: &Path) -> Vec<Params> {
    let trained = Trained::open(&RunFolder::open(folder).expect("a run"), |_| {}).expect("finished");
    (0..trained.prepared().names().count()).map(|client| trained.model(client).expect("a model").weights.params).collect()
}

#[test]
fn a_network_of_ours_computed_by_others_ends_with_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    // Plain steps, proximal terms and duals, heads that stay, optimisers that take the gradient as a whole.
    for (at, settings) in [
        &["method=fedavg", "training.schedule.shape=cosine"][..],
        &["method=fedeq", "training.personal_epochs=1", "data.unseen={ count = 2 }"],
        &["method=fedrep", "training.personal_epochs=1", "training.optimiser=adam", "training.clip_gradient=0.5"],
        &["method=fedprox", "training.momentum=0.9", "plan.compression.up=float16"],
        &["method=scaffold"],
    ]
    .into_iter()
    .enumerate()
    {
        let settings = [settings, &["training.remainder=drop", "training.learning_rate=0.05"]].concat();
        let [here, there] = ["here", "there"].map(|name| folder.path().join(format!("{name}-{at}")));
        let ours = train(Run::create(&ours(&[&settings[..], &["model=mlp", "model.hidden=[16]"]].concat()), &here));
        let prepared = self::ours(&["model=mlp", "model.hidden=[16]"]).prepare().expect("sound");
        let own = OurOwn { network: Arc::clone(&prepared.network), dataset: Arc::clone(&prepared.dataset), forgets: false };
        let model = ExternalModel { name: "own".into(), initial: prepared.initial().params, network: Some(Arc::new(own)) };
        let theirs = train(Run::create_external(&theirs(&settings, &model), &there, model));
        assert_eq!(models(&here), models(&there), "{settings:?}");
        assert_eq!(ours.evaluation.traffic, theirs.evaluation.traffic, "{settings:?}");
        assert!((ours.accuracy() - theirs.accuracy()).abs() < 1e-12, "{settings:?}");
        assert_eq!((theirs.model.as_str(), theirs.computed_by.as_deref()), ("external:own", Some("a test")));
        assert_eq!(ours.computed_by, None);
    }
}

#[test]
fn a_network_written_by_hand_ends_where_ours_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = ["method=fedavg", "training.learning_rate=0.05"];
    let [here, there] = ["here", "there"].map(|name| folder.path().join(name));
    let ours = train(Run::create(&ours(&[&settings[..], &["model=linear"]].concat()), &here));
    let (model, _) = regression();
    let theirs = train(Run::create_external(&theirs(&settings, &model), &there, model));
    for (ours, theirs) in models(&here).iter().zip(models(&there)) {
        assert!(ours.minus(&theirs).norm() < 1e-6 * ours.norm(), "{} of {}", ours.minus(&theirs).norm(), ours.norm());
    }
    assert_eq!(ours.accuracy(), theirs.accuracy());
    let difference = ours.evaluation.local.loss - theirs.evaluation.local.loss;
    assert!(difference.abs() < 1e-6, "{difference}");
}

/// Stops after a round.
struct StopAfter(u64);

impl<T: ?Sized> Observer<T> for StopAfter {
    fn observe(&mut self, event: &Event<'_>, _: &mut T) -> Result<ControlFlow<()>> {
        let is_over = matches!(event, Event::Settled { server, .. } if server.round == self.0);
        Ok(if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

/// Files of a run by name that are the same for the same experiment.
fn journals(folder: &Path) -> BTreeMap<&'static str, Vec<u8>> {
    ["rounds.jsonl", "evaluations.jsonl", "metrics.csv"]
        .map(|name| (name, fs::read(folder.join(name)).expect("a journal")))
        .into()
}

#[test]
fn a_run_that_stopped_continues_with_its_own_numbers_whatever_the_network_starts_from() {
    let folder = tempfile::tempdir().expect("a folder");
    let [whole, halted] = ["whole", "halted"].map(|name| folder.path().join(name));
    let (model, network) = regression();
    let experiment = theirs(&["method=fedeq", "engine.workers=1"], &model);
    train(Run::create_external(&experiment, &whole, model.clone()));
    let many = theirs(&["method=fedeq", "engine.workers=4"], &model);
    let run = Run::create_external(&many, &halted, model.clone()).expect("sound");
    assert!(matches!(run.train(&mut StopAfter(1), &|| false), Err(Error::Interrupted)));
    drop(run);
    let halted = RunFolder::open(&halted).expect("a run");
    // The program alone cannot continue it, and says who can.
    let error = Run::resume(&halted, Which::Latest, None, |_| {}).err().expect("nobody computes it");
    assert!(error.to_string().contains("`softmax` is computed outside of fedeq"), "{error}");
    assert!(error.hint().contains("fedeq.resume(folder, network=...)"), "{}", error.hint());
    let resume = |model: ExternalModel| Run::resume_external(&halted, Which::Latest, |_| {}, model);
    // Another network is not the run's.
    let renamed = ExternalModel { name: "other".into(), ..model.clone() };
    assert!(resume(renamed).err().expect("another name").to_string().contains("`other`, and that of the run `softmax`"));
    let smaller = ExternalModel { initial: model.initial.filter(|name| name != "output.bias"), ..model.clone() };
    assert!(resume(smaller).err().expect("another layout").to_string().contains("`output.bias`"));
    // A network that fails stops the run at a checkpoint.
    network.is_broken.store(true, Ordering::Relaxed);
    let broken = resume(model.clone()).and_then(|run| run.train(&mut Silent, &|| false)).expect_err("it broke");
    assert_eq!(broken.to_string(), "it broke");
    network.is_broken.store(false, Ordering::Relaxed);
    // A network that was made anew starts from other numbers, which the run does not.
    train(resume(ExternalModel { initial: model.initial.map(|value| value + 1.0), ..model }));
    assert_eq!(journals(halted.path()), journals(&whole));
    assert_eq!(models(halted.path()), models(&whole));
}

#[test]
fn what_needs_a_network_of_ours_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let (model, _) = regression();
    let refusal = |settings: &[&str]| {
        let begin = |experiment: Experiment| Run::create_external(&experiment, &folder.path().join("no"), model.clone());
        let run = read(settings, &model).and_then(begin);
        run.err().unwrap_or_else(|| panic!("{settings:?}")).to_string()
    };
    for (settings, words) in [
        (&["engine.device=cuda"][..], "`engine.device = cuda` does not go with the network `softmax`"),
        (&["method=moon"], "`method = moon` trains on features, and the network `softmax` offers no gradient of them"),
        (&["method=knn-per"], "`method = knn-per` needs features, and the network `softmax` offers none"),
        (&["method=fedbn"], "no parameter of the network `softmax` is called so"),
        (&["training.projection={ ball = 0.9 }"], "`training.projection`"),
        (&["training.watch_fixed_points={}"], "`training.watch_fixed_points` does not go with `external`"),
        (&["training.warm_start=previous-batch"], "`training.warm_start`"),
        (&["training.initial_heads=own", "method=fedrep"], "`training.initial_heads = own`"),
        (&["model=linear"], "`model` does not go with a network of your own"),
        (&["model.equilibrium.adjoint=implicit"], "`model.equilibrium.adjoint` does not go with a network of your own"),
    ] {
        let problem = refusal(settings);
        assert!(problem.contains(words), "{settings:?}: {problem}");
    }
    assert!(!folder.path().join("no").exists(), "nothing is left behind");
    // The command line knows the name, and who has to be asked.
    let alone = Experiment::read(None, &overrides(&["model=external", "model.network=cnn"])).and_then(|alone| alone.prepare());
    assert_eq!(alone.err().expect("nobody computes it").to_string(), "the network `cnn` is computed outside of fedeq");
    // A network of ours has no need of somebody else.
    let ours = Run::create_external(&ours(&["model=linear"]), &folder.path().join("no"), model.clone());
    assert!(ours.err().expect("two networks").to_string().contains("the experiment's network is `linear`, and not `softmax`"));
    // Numbers that are none, and names that are none.
    let bad = ExternalModel { initial: model.initial.map(|_| f32::NAN), ..model.clone() };
    let bad = Run::create_external(&theirs(&[], &bad), &folder.path().join("no"), bad);
    assert!(bad.err().expect("not finite").to_string().contains("not all finite"));
    assert!(read(&[], &ExternalModel { name: "a\nb".into(), ..model.clone() }).is_err());
    // What a file says of a network of ours is not lost.
    let file = folder.path().join("mlp.toml");
    fs::write(&file, "model = { name = \"mlp\", hidden = [8] }").expect("writable");
    let mixed = Experiment::read(Some(&file), &model.over(&[]).expect("a name"));
    assert!(mixed.expect_err("a setting of another network").to_string().contains("hidden"));
}

#[test]
fn a_finished_run_gives_its_numbers_and_is_neither_exported_nor_evaluated_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (model, _) = regression();
    let path = folder.path().join("run");
    train(Run::create_external(&theirs(&["method=fedavg"], &model), &path, model));
    let trained = Trained::open(&RunFolder::open(&path).expect("a run"), |_| {}).expect("finished");
    assert!(trained.model(0).is_ok() && trained.prepared().is_external());
    let problems = [
        export(&trained, &[0], &folder.path().join("out")).err().map(|error| error.to_string()),
        trained.evaluate().err().map(|error| error.to_string()),
        trained.prepared().network_problem(0).err().map(|error| error.to_string()),
    ];
    for problem in problems {
        assert!(problem.as_ref().is_some_and(|text| text.contains("`softmax` is computed outside of fedeq")), "{problem:?}");
    }
    // What it started from is part of the folder, and must be what it was.
    fs::write(path.join("network.safetensors"), b"nothing").expect("writable");
    assert!(matches!(Trained::open(&RunFolder::open(&path).expect("a run"), |_| {}), Err(Error::Damaged { .. })));
}

#[test]
fn what_others_give_is_checked() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = as_theirs("mlp", true);
    let run = Run::create_external(&theirs(&["method=fedavg"], &model), &folder.path().join("run"), model).expect("sound");
    let problem = run.train(&mut Silent, &|| false).expect_err("an array is missing").to_string();
    assert!(problem.starts_with("client `") && problem.contains("the gradient that a test gave lacks `head.bias`"), "{problem}");
}

#[test]
fn the_identity_knows_name_and_layout() {
    let (model, _) = regression();
    let identity = |model: &ExternalModel| theirs(&[], model).identity().expect("an identity");
    let renamed = ExternalModel { name: "other".into(), ..model.clone() };
    let smaller = ExternalModel { initial: model.initial.filter(|name| name != "output.bias"), ..model.clone() };
    let moved = ExternalModel { initial: model.initial.map(|value| 2.0 * value), ..model.clone() };
    assert_ne!(identity(&model), identity(&renamed));
    assert_ne!(identity(&model), identity(&smaller));
    assert_eq!(identity(&model), identity(&moved), "seeds may start elsewhere");
    let experiment = theirs(&[], &model);
    assert!(matches!(&experiment.model, ModelConfig::External(options) if *options == model.options()));
    assert_eq!(Experiment::from_resolved(&experiment.to_toml().expect("writable")).expect("resolved"), experiment);
    assert!(experiment.title().ends_with("with external:softmax"), "{}", experiment.title());
}
