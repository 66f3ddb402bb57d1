"""What puts rope_any under the code of others: one module for each library, which it alone imports."""
