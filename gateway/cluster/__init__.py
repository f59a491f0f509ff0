"""Several machines: replicas, routing, autoscaling and the store that all gateways share."""
