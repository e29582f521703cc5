"""A stopped run resumes exactly; models as files."""
