"""Settings of small experiments."""

# Few samples and short training, for any number of clients.
SHORT = ("data.limit.train=30", "data.limit.test=30", "training.epochs=1", "training.personal_epochs=1")
SMALL = ("data.partition.clients=5", *SHORT)
# rho is neither 0 nor 1, which hide mistakes in the dual.
FEDEQ = (
    *("method=fedeq", "method.rho=0.3"),
    *("plan.rounds=4", "plan.evaluate_every=2", "plan.sampling.fraction=0.6"),
    *SMALL,
)
