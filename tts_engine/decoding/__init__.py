"""Sessions of networks that decode speech ids and render them: what the families of networks share."""
