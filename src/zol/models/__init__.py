"""What pretraining learns: F, B and a policy for every latent z."""
