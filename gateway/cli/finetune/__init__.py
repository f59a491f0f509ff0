"""The commands ``vivavoce finetune prepare | train | evaluate | export``."""
