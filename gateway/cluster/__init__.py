"""Several machines as one server: replicas of the engine, the gateways that use them, what they share."""
