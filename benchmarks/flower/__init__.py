"""The FedAvg task as a Flower app, run by Flower's own simulation (Ray)."""
