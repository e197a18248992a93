#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace pointsman {

// Counts the references to an object that lives on one thread. The count is a plain integer: for
// objects that several threads share, use std::shared_ptr.
//
// `T` derives from RefCounted<T>; the last IntrusivePtr calls T::on_unreferenced(), which deletes
// the object or gives it back to a pool.
template <typename T>
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

  void add_reference() { ++references_; }
  void drop_reference() {
    if (--references_ == 0) static_cast<T*>(this)->on_unreferenced();
  }

 protected:
  ~RefCounted() = default;

 private:
  std::uint32_t references_ = 0;
};

template <typename T>
class IntrusivePtr {
 public:
  IntrusivePtr() = default;
  explicit IntrusivePtr(T* object) : object_(object) {
    if (object_ != nullptr) object_->add_reference();
  }
  IntrusivePtr(const IntrusivePtr& other) : IntrusivePtr(other.object_) {}
  IntrusivePtr(IntrusivePtr&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  IntrusivePtr& operator=(IntrusivePtr other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~IntrusivePtr() {
    if (object_ != nullptr) object_->drop_reference();
  }

  void reset() { *this = IntrusivePtr(); }
  [[nodiscard]] T* get() const { return object_; }
  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

// A doubly linked list of objects that carry their own links: no allocation, removal in O(1) from
// the object alone. `Tag` lets one object be in several lists. Destroying an object takes it out.
template <typename Tag>
class ListLink {
 public:
  ListLink() = default;
  ~ListLink() { unlink(); }
  ListLink(const ListLink&) = delete;
  ListLink& operator=(const ListLink&) = delete;

  [[nodiscard]] bool linked() const { return next_ != this; }
  void unlink() {
    previous_->next_ = next_;
    next_->previous_ = previous_;
    next_ = previous_ = this;
  }

 private:
  template <typename T, typename ListTag>
  friend class IntrusiveList;

  ListLink* next_ = this;
  ListLink* previous_ = this;
};

// `T` derives from ListLink<Tag>. The list does not own its objects.
template <typename T, typename Tag>
class IntrusiveList {
 public:
  using Link = ListLink<Tag>;

  [[nodiscard]] bool empty() const { return !head_.linked(); }
  void push_back(T& object) {
    Link& link = object;
    link.unlink();
    link.previous_ = head_.previous_;
    link.next_ = &head_;
    head_.previous_->next_ = &link;
    head_.previous_ = &link;
  }
  [[nodiscard]] T* front() { return empty() ? nullptr : static_cast<T*>(head_.next_); }
  [[nodiscard]] T* back() { return empty() ? nullptr : static_cast<T*>(head_.previous_); }

  // Calls use(T&) for each object. The callback may remove the object that it is given, and no
  // other.
  template <typename Use>
  void for_each(Use&& use) {
    for (Link* link = head_.next_; link != &head_;) {
      Link* const next = link->next_;
      use(static_cast<T&>(*link));
      link = next;
    }
  }

  // Calls use(T&) for each object that was in the list at the start; the callback may do anything
  // to the list, which also receives the objects that are not removed, in the same order.
  template <typename Use>
  void for_each_safely(Use&& use) {
    IntrusiveList visited;
    visited.take(*this);
    while (T* object = visited.front()) {
      push_back(*object);
      use(*object);
    }
  }

 private:
  void take(IntrusiveList& other) {
    while (T* object = other.front()) push_back(*object);
  }

  Link head_;
};

}  // namespace pointsman
