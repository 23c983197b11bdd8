//! What must be set beside a setting for it to mean something.
use fedeq_run::experiment::{Override, SettingInfo};

/// Settings as they are typed.
pub(crate) fn overrides(settings: &[impl AsRef<str>]) -> Vec<Override> {
    settings.iter().map(|text| text.as_ref().parse().expect("a setting")).collect()
}

/// The choices without which a setting means nothing.
pub(crate) fn needs(setting: &SettingInfo) -> Vec<String> {
    // The usual one where it is one of them, since the default is that of the usual one.
    let usual =
        |values: &[String]| values.iter().find(|value| ["fedeq", "deq-resnet-xs", "digits"].contains(&value.as_str())).cloned();
    let choice = |values: &[String]| usual(values).unwrap_or_else(|| values[0].clone());
    setting.only_with.iter().map(|condition| format!("{}={}", condition.key, choice(&condition.values))).collect()
}

/// What must be set beside a setting for it to mean something, by the beginning of its key.
const CONTEXT: [(&str, &[&str]); 26] = [
    ("training.schedule.last", &["training.schedule.shape=cosine"]),
    ("training.schedule.every", &["training.schedule.shape=step"]),
    ("training.schedule.factor", &["training.schedule.shape=step", "training.schedule.every=2"]),
    ("training.local_schedule.last", &["training.local_schedule.shape=cosine"]),
    ("training.local_schedule.every", &["training.local_schedule.shape=step"]),
    ("training.local_schedule.factor", &["training.local_schedule.shape=step", "training.local_schedule.every=2"]),
    ("training.beta", &["training.optimiser=adam"]),
    ("training.epsilon", &["training.optimiser=adam"]),
    ("training.augment.crop", &["training.augment.flip=true"]),
    (
        "data.source.problem.classes",
        &["data.source.problem.width=70000", "data.source.problem.clients=2", "data.source.problem.samples=2"],
    ),
    ("plan.patience", &["data.split.validation=0.2"]),
    ("plan.privacy.noise_multiplier", &[]),
    ("plan.privacy.dropouts", &["plan.privacy.noise=clients", "plan.privacy.epsilon=8"]),
    ("plan.privacy.count_noise", &["plan.privacy.clip.adaptive.initial=1.0", "plan.privacy.noise_multiplier=1.0"]),
    ("plan.privacy.clip.adaptive", &["plan.privacy.clip.adaptive.initial=1.0", "plan.privacy.noise_multiplier=1.0"]),
    ("plan.privacy.epsilon", &[]),
    (
        "plan.privacy.delta",
        &["plan.privacy.noise_multiplier=1.0", "data.partition=iid", "data.partition.clients=1", "model.norm=group"],
    ),
    ("plan.privacy", &["plan.privacy.noise_multiplier=1.0"]),
    ("plan.asynchronous", &["method.server_step=consensus"]),
    ("plan.compression.keep_rounds", &["plan.compression.down=int8"]),
    ("training.projection", &["model=deq-mlp"]),
    ("plan.secure_aggregation.largest_weight", &["method=fedavg"]),
    ("engine.device_memory_mb", &["engine.device=cuda"]),
    ("attack", &["attack=noise"]),
    ("data.split.validation", &["data.split.test=0.0"]),
    ("data.source.problem.width", &["data.source.problem.classes=2"]),
];

/// All of it.
pub(crate) fn context(setting: &SettingInfo) -> Vec<String> {
    let mut settings = needs(setting);
    if let Some((_, context)) = CONTEXT.iter().find(|(key, _)| setting.key.starts_with(key)) {
        settings
            .extend(context.iter().map(|&text| text.to_owned()).filter(|text| !text.starts_with(&format!("{}=", setting.key))));
    }
    if setting.only_with.iter().any(|condition| condition.values[0] == "natural") {
        settings.push("data=synthetic".into());
    }
    if setting.only_with.iter().any(|condition| condition.values[0] == "label-shards") && setting.key.ends_with("clients") {
        settings.push("data.partition.shards=10".into());
    }
    if setting.key != "plan.sampling.fraction" {
        settings.push("plan.sampling.fraction=1.0".into());
    }
    settings
}
