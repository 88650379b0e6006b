"""The operator's page: read only, rendered here, without anything that is fetched from elsewhere."""
