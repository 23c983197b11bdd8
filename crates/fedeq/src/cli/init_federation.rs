//! `fedeq init-federation`.
use std::path::PathBuf;

use clap::Args;
use fedeq_run::agreement::SigningKeys;

use super::failure::{Failure, Outcome};
use super::output::tell;
use super::settings::ExperimentArgs;
use crate::federation;

/// Writes an experiment as an app for a Flower federation.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq init-federation --set plan.rounds=20 --out app
  fedeq init-federation experiment.toml --data data --out app
  fedeq init-federation --set plan.secure_aggregation.clip=1 --signing-keys clients.toml --out app
  fedeq init-federation --set data=images --set data.partition.rule=own --data example --out app

If every client has its own data (`rule=own`), the data given here is an example: it defines the size of pictures, \
the classes, and the mean and deviation that features are standardised by (unless `data.source.scale=none`).

The folder's README has the commands that start a SuperLink, nodes and a run on one machine. Its `agreement.toml` is for the owners of \
nodes: it has the fingerprint by which they accept this experiment and no other.")]
pub(super) struct InitFederationCommand {
    #[command(flatten)]
    experiment: ExperimentArgs,
    /// The folder of the app, which must not exist yet
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The path of your own data, or the folder of the data sets: the sizes of the clients are part of the plan [default:
    /// $FEDEQ_DATA, or data]
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// A file with the clients' public keys for secure aggregation: a line for each client that trains, as `fedeq node key --signing --client N` prints it
    #[arg(long, value_name = "FILE")]
    signing_keys: Option<PathBuf>,
}

pub(super) fn run(arguments: &InitFederationCommand) -> Outcome<()> {
    let mut experiment = arguments.experiment.experiment(arguments.data.as_deref())?;
    if let Some(path) = &arguments.signing_keys {
        let keys = SigningKeys::read(path).and_then(|keys| keys.in_order()).map_err(Failure::refused)?;
        let secure = experiment.plan.secure_aggregation.as_mut().filter(|secure| secure.signing_keys.is_empty());
        let secure = secure.ok_or_else(|| {
            let problem = "`--signing-keys` is for an experiment with `plan.secure_aggregation` that has no keys of its own";
            Failure::request(problem, "set `plan.secure_aggregation.clip`, and leave out `plan.secure_aggregation.signing_keys`")
        })?;
        secure.signing_keys = keys;
    }
    let fingerprint = federation::write(&experiment, &arguments.out).map_err(Failure::refused)?;
    let path = arguments.out.display();
    tell(&format!("wrote `{path}`; `{path}/README.md` says how to start it"));
    tell(&format!(
        "nodes take part with `--accept {fingerprint}`; `fedeq node inspect {path}/agreement.toml` shows their owners what it means"
    ));
    Ok(())
}
