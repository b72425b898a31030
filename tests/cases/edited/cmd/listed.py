import part
print(part.K)
