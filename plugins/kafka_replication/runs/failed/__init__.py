"""What a person does with records that were set aside: look at them, copy them after all, or give them up."""
