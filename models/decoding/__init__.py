"""Language models that decode speech ids: what the families of networks share."""
