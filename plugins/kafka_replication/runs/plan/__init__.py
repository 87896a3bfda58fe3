"""The first step of a run: look, ask for rights, create topics, open partitions, plan and store the plan."""
