-- Patterns of the virtual servers that a tenant may enter, as `backends` are of what it may use.
ALTER TABLE tenants ADD COLUMN servers TEXT NOT NULL DEFAULT '["*"]';
