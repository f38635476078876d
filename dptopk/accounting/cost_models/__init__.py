"""The registered facts about each type of cost, one module per type."""
