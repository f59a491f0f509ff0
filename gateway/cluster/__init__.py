"""Several machines: routing, autoscaling and the store that all gateways share."""
