"""Why a client cannot work: what an error of Kafka means, and what a broker answers to a connection of our own."""
