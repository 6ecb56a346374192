"""How the nodes of an inventory are touched: commands by template, on this machine or another."""
